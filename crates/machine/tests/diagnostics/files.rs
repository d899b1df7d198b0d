//! Whole files.

use expect_test::expect;
use machine::{Machine, Scenario};

use super::check;

#[test]
fn not_toml() {
    check::<Machine>(
        "name = \"x\nsummary = 3\n[host\n",
        expect![[r#"
        error: not TOML: invalid basic string, expected `"`
         --> my.toml:1:10
          |
        1 | name = "x
          |          ^

        error: not TOML: unclosed table, expected `]`
         --> my.toml:3:6
          |
        3 | [host
          |      ^"#]],
    );
}

/// CXL memory on a host with one socket, which says nothing of how nodes are joined.
#[test]
fn an_expander_that_hangs_nowhere() {
    let figure = |key: &str, value: &str| format!("{key} = {{ value = {value}, source = \"assumed: x\" }}\n");
    let head = "name = \"x\"\nextends = \"fujitsu-tx1310\"\nsummary = \"x\"\n[host.expander]\n";
    let figures = [
        ("socket", "1"),
        ("size", "\"100 B\""),
        ("bandwidth", "\"20 GB/s\""),
        ("latency", "\"1 s\""),
        ("channels", "1"),
        ("channel_bandwidth", "\"25.6 GB/s\""),
        ("access", "\"80 ns\""),
    ];
    let all: String = figures.iter().map(|(key, value)| figure(key, value)).collect();
    check::<Machine>(
        &(head.to_owned() + &all),
        expect![[r#"
        error: `expander`: the host has no node to spare for CXL memory
         --> my.toml:4:1
          |
        4 | [host.expander]
          | ^^^^^^^^^^^^^^^
          |
          = help: fewer than 8 sockets, each with memory, and a table `host.interconnect` that says how nodes are told

        error: `socket`: there is no socket 1
         --> my.toml:5:20
          |
        5 | socket = { value = 1, source = "assumed: x" }
          |                    ^
          |
          = help: sockets are numbered 0 to 0

        error: `size`: 100 B is no node's memory
         --> my.toml:6:18
          |
        6 | size = { value = "100 B", source = "assumed: x" }
          |                  ^^^^^^^
          |
          = help: whole lines of 64 B, 1 MiB or more

        error: `latency`: 1 s for a line
         --> my.toml:8:21
          |
        8 | latency = { value = "1 s", source = "assumed: x" }
          |                     ^^^^^
          |
          = help: 1 ms at most"#]],
    );
}

#[test]
fn a_key_twice() {
    check::<Machine>(
        "name = \"x\"\nname = \"y\"\n",
        expect![[r#"
        error: not TOML: duplicate key
         --> my.toml:2:1
          |
        2 | name = "y"
          | ^^^^"#]],
    );
}

#[test]
fn nothing_at_all() {
    check::<Scenario>(
        "",
        expect![[r#"
            error: `name` is missing
            --> my.toml

            error: `summary` is missing
            --> my.toml

            error: `machine` is missing
            --> my.toml

            error: `card` is missing
            --> my.toml

            error: `pcie_bench` is missing
            --> my.toml"#]],
    );
}

#[test]
fn several_errors_at_once() {
    check::<Scenario>(
        "name = \"x\"\nsummary = \"y\"\nmachine = \"dell-t430\"\ncard = 6000\nseeds = 4\n\n[pcie_bench]\n\
         test = [\"LAT_RD\", \"LAT_WR\"]\npattern = \"random\"\ncache = \"hot\"\nwindow = \"64 kB\"\ntransfer = \"0 B\"\n",
        expect![[r#"
            error: `card` takes text, not an integer
             --> my.toml:4:8
              |
            4 | card = 6000
              |        ^^^^ this is an integer

            error: unknown key `seeds` in the file
             --> my.toml:5:1
              |
            5 | seeds = 4
              | ^^^^^ not a key of this table
              |
              = help: did you mean `seed`?
                      the keys here are `name`, `summary`, `machine`, `card`, `slot`, `change`, `change_card`, `seed`, `pcie_bench`

            error: `test` cannot be "LAT_WR"
             --> my.toml:8:19
              |
            8 | test = ["LAT_RD", "LAT_WR"]
              |                   ^^^^^^^^
              |
              = help: did you mean `LAT_WRRD`?
                      one of `LAT_RD`, `LAT_WRRD`, `BW_RD`, `BW_WR`, `BW_RDWR`

            error: `pattern` cannot be "random"
             --> my.toml:9:11
              |
            9 | pattern = "random"
              |           ^^^^^^^^
              |
              = help: did you mean `rand`?
                      one of `seq`, `rand`

            error: `cache` cannot be "hot"
              --> my.toml:10:9
               |
            10 | cache = "hot"
               |         ^^^^^
               |
               = help: one of `cold`, `host-warm`, `device-warm`, `device-thrash`

            error: `window`: `64 kB` has `kB` as its unit; a size takes B, KiB, MiB, GiB, TiB
              --> my.toml:11:10
               |
            11 | window = "64 kB"
               |          ^^^^^^^
               |
               = help: such as "64 KiB""#]],
    );
}

/// A file that cannot be one of ours is not quoted.
#[test]
fn a_file_of_something_else() {
    check::<Machine>(
        "name = \"x\"\nextends = \"/etc/passwd\"\nsummary = \"x\"\n",
        expect![[r#"
            error: `/etc/passwd` is not a .toml file
             --> my.toml:2:11
              |
            2 | extends = "/etc/passwd"
              |           ^^^^^^^^^^^^^
              |
              = help: the path of the file of a machine"#]],
    );
}
