//! What a user sees for each kind of bad input. `UPDATE_EXPECT=1 cargo test -p machine` rewrites the texts.

use expect_test::{Expect, expect};
use machine::{Doc, Kindred, Library, Machine, Part, Scenario, Setup};

/// A file of the repository with `from` replaced by `to`.
fn edited(path: &str, from: &str, to: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "`{from}` is not in the file");
    text.replacen(from, to, 1)
}

fn check<T: Kindred + std::fmt::Debug>(text: &str, expected: Expect) {
    let doc = Doc::<T>::from_text(&Library::built_in(), "my.toml", text);
    expected.assert_eq(&doc.read().expect_err("should be refused").render(false));
}

fn check_line(path: &str, key: &str, line: &str, expected: Expect) {
    let text = edited(path, "", "");
    let found =
        text.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("no `{key}`")).to_owned();
    let text = text.replacen(&found, line, 1);
    if path.starts_with("machines/parts") {
        check::<Part>(&text, expected);
    } else if path.starts_with("scenarios") {
        check::<Scenario>(&text, expected);
    } else {
        check::<Machine>(&text, expected);
    }
}

const T430: &str = "machines/dell-t430.toml";

#[test]
fn unknown_key() {
    check_line(
        T430,
        "ddio_ways",
        r#"ddio_way = { value = 2, source = "fitted: x" }"#,
        expect![[r#"
            error: `ddio_ways` is missing
              --> my.toml:46:1
               |
            46 | [host.llc]
               | ^^^^^^^^^^ in this table

            error: unknown key `ddio_way` in `llc`
              --> my.toml:62:1
               |
            62 | ddio_way = { value = 2, source = "fitted: x" }
               | ^^^^^^^^ not a key of this table
               |
               = help: did you mean `ddio_ways`? The keys here are `size`, `ways`, `slices`, `slice_fold`, `replacement`, `inclusion`, `snoop_filter_size`, `snoop_filter_ways`, `eviction_notice`, `core_hit`, `device_lookup`, `device_return`, `device_commit`, `device_service`, `core_snoop`, `snoop_lookup`, `remote_home_hit`, `ddio_ways`, `device_reads_allocate`, `dirty_eviction`, `acquire`, `background`, `walks_allocate`"#]],
    );
}

#[test]
fn wrong_unit() {
    check_line(
        T430,
        "core_hit",
        r#"core_hit = { value = "20 nanoseconds", source = "fitted: x" }"#,
        expect![[r#"
            error: `core_hit`: `20 nanoseconds` has `nanoseconds` as its unit; a time takes ps, ns, us, ms, s
              --> my.toml:54:22
               |
            54 | core_hit = { value = "20 nanoseconds", source = "fitted: x" }
               |                      ^^^^^^^^^^^^^^^^
               |
               = help: such as "330 ns""#]],
    );
}

#[test]
fn no_unit() {
    check_line(
        T430,
        "core_hit",
        r#"core_hit = { value = 20, source = "fitted: x" }"#,
        expect![[r#"
            error: `core_hit` takes a number with its unit as text, such as "330 ns", not an integer
              --> my.toml:54:22
               |
            54 | core_hit = { value = 20, source = "fitted: x" }
               |                      ^^ this is an integer"#]],
    );
}

#[test]
fn gigabits_where_gigabytes_belong() {
    check_line(
        T430,
        "channel_bandwidth",
        r#"channel_bandwidth = { value = "17 Gbit/s", source = "fitted: x" }"#,
        expect![[r#"
            error: `channel_bandwidth`: `17 Gbit/s` has `Gbit/s` as its unit; a byte rate takes B/s, kB/s, MB/s, GB/s, TB/s
              --> my.toml:74:31
               |
            74 | channel_bandwidth = { value = "17 Gbit/s", source = "fitted: x" }
               |                               ^^^^^^^^^^^
               |
               = help: such as "12.8 GB/s""#]],
    );
}

#[test]
fn no_source() {
    check_line(
        T430,
        "core_hit",
        r#"core_hit = "20 ns""#,
        expect![[r#"
            error: `core_hit` does not say where its value comes from
              --> my.toml:54:1
               |
            54 | core_hit = "20 ns"
               | ^^^^^^^^
               |
               = help: write `core_hit = { value = .., source = "datasheet: .." }`, or a `source` for the whole table"#]],
    );
}

#[test]
fn no_source_in_a_figure() {
    check_line(
        T430,
        "core_hit",
        r#"core_hit = { value = "20 ns" }"#,
        expect![[r#"
            error: `core_hit` does not say where its value comes from
              --> my.toml:54:12
               |
            54 | core_hit = { value = "20 ns" }
               |            ^^^^^^^^^^^^^^^^^^^
               |
               = help: add `source = "datasheet: .."` (or fitted, measured, specification, relative, assumed)"#]],
    );
}

#[test]
fn source_of_no_kind() {
    check_line(
        T430,
        "core_hit",
        r#"core_hit = { value = "20 ns", source = "my guess" }"#,
        expect![[r#"
            error: the source of `core_hit` is of no known kind
              --> my.toml:54:40
               |
            54 | core_hit = { value = "20 ns", source = "my guess" }
               |                                        ^^^^^^^^^^
               |
               = help: begin it with its kind and a colon: `fitted`, `measured`, `datasheet`, `specification`, `relative`, `assumed`, `override`"#]],
    );
}

#[test]
fn impossible_width() {
    check_line(
        T430,
        "width",
        r#"width = { value = 3, source = "measured: x" }"#,
        expect![[r#"
            error: `width` cannot be 3
               --> my.toml:131:19
                |
            131 | width = { value = 3, source = "measured: x" }
                |                   ^ not a link width
                |
                = help: a link width is one of [1, 2, 4, 8, 12, 16, 32]"#]],
    );
}

#[test]
fn odd_mps() {
    check_line(
        T430,
        "mps_bytes",
        r#"mps_bytes = { value = 300, source = "measured: x" }"#,
        expect![[r#"
            error: `mps_bytes` cannot be 300
               --> my.toml:132:23
                |
            132 | mps_bytes = { value = 300, source = "measured: x" }
                |                       ^^^ not a payload or request limit in bytes
                |
                = help: a payload or request limit in bytes is one of [128, 256, 512, 1024, 2048, 4096]"#]],
    );
}

#[test]
fn ways_that_do_not_divide() {
    check_line(
        T430,
        "size = \"256 KiB\"",
        r#"size = "100000 B""#,
        expect![[r#"
            error: `size`: 97.656 KiB do not divide into sets of 8 lines
              --> my.toml:41:8
               |
            41 | size = "100000 B"
               |        ^^^^^^^^^^
               |
               = help: a multiple of 512 B (8 ways of 64 B)"#]],
    );
}

#[test]
fn more_ddio_ways_than_ways() {
    check_line(
        T430,
        "ddio_ways",
        r#"ddio_ways = { value = 21, source = "fitted: x" }"#,
        expect![[r#"
            error: `ddio_ways`: 21 of 20 ways
              --> my.toml:62:23
               |
            62 | ddio_ways = { value = 21, source = "fitted: x" }
               |                       ^^
               |
               = help: from 0 (no DDIO) to 20"#]],
    );
}

#[test]
fn zero_rate() {
    check_line(
        T430,
        "frequency",
        r#"frequency = { value = "0 GHz", source = "datasheet: x" }"#,
        expect![[r#"
            error: `frequency` must not be zero
              --> my.toml:22:23
               |
            22 | frequency = { value = "0 GHz", source = "datasheet: x" }
               |                       ^^^^^^^
               |
               = help: such as "2.2 GHz""#]],
    );
}

#[test]
fn none_of_something() {
    check_line(
        T430,
        "walkers",
        r#"walkers = { value = 0, source = "fitted: x" }"#,
        expect![[r#"
            error: `walkers` cannot be 0
               --> my.toml:179:21
                |
            179 | walkers = { value = 0, source = "fitted: x" }
                |                     ^
                |
                = help: from 1 to 4294967295"#]],
    );
}

#[test]
fn unknown_name() {
    check_line(
        T430,
        "remote_write",
        r#"remote_write = { value = "allocate-at-device", source = "fitted: x" }"#,
        expect![[r#"
            error: `remote_write` cannot be "allocate-at-device"
              --> my.toml:91:26
               |
            91 | remote_write = { value = "allocate-at-device", source = "fitted: x" }
               |                          ^^^^^^^^^^^^^^^^^^^^
               |
               = help: one of `allocate-at-device-socket`, `allocate-at-home-socket`, `to-home-memory`"#]],
    );
}

#[test]
fn refresh_longer_than_its_interval() {
    check_line(
        T430,
        "refresh_duration",
        r#"refresh_duration = { value = "9 us", source = "fitted: x" }"#,
        expect![[r#"
            error: `refresh_duration`: a refresh of 9 us does not end within its interval of 7.8 us
              --> my.toml:79:30
               |
            79 | refresh_duration = { value = "9 us", source = "fitted: x" }
               |                              ^^^^^^
               |
               = help: less than `refresh_interval`"#]],
    );
}

#[test]
fn link_to_nowhere() {
    check_line(
        T430,
        "links",
        r#"links = { value = [[0, 2]], source = "datasheet: x" }"#,
        expect![[r#"
            error: `links`: there is no socket 2
              --> my.toml:84:19
               |
            84 | links = { value = [[0, 2]], source = "datasheet: x" }
               |                   ^^^^^^^^
               |
               = help: sockets are numbered 0 to 1

            error: `links`: some sockets cannot be reached from socket 0
              --> my.toml:84:19
               |
            84 | links = { value = [[0, 2]], source = "datasheet: x" }
               |                   ^^^^^^^^
               |
               = help: add links until every socket can be reached"#]],
    );
}

#[test]
fn credits_for_less_than_a_payload() {
    check_line(
        T430,
        "pd = ",
        "pd = 8",
        expect![[r#"
            error: `pd`: 8 credits do not hold a payload of 256 B
               --> my.toml:143:6
                |
            143 | pd = 8
                |      ^
                |
                = help: at least 16 (`mps_bytes` / 16)"#]],
    );
}

#[test]
fn missing_key() {
    check_line(
        T430,
        "ddio_ways",
        "",
        expect![[r#"
            error: `ddio_ways` is missing
              --> my.toml:46:1
               |
            46 | [host.llc]
               | ^^^^^^^^^^ in this table"#]],
    );
}

#[test]
fn more_tags_than_can_be_told_apart() {
    check_line(
        "machines/parts/nfp6000.toml",
        "tags",
        r#"tags = { value = 64, source = "assumed: x" }"#,
        expect![[r#"
            error: `tags`: 64 reads cannot be told apart
              --> my.toml:22:18
               |
            22 | tags = { value = 64, source = "assumed: x" }
               |                  ^^
               |
               = help: at most 32: 32 with `tag_bits` 5, 256 with 8, 768 with 10"#]],
    );
}

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
fn a_window_smaller_than_a_transfer() {
    check_line(
        "scenarios/latency-by-size.toml",
        "window",
        r#"window = "1 KiB""#,
        expect![[r#"
            error: `window`: 1 KiB cannot hold one transfer of 2 KiB at offset 0
              --> my.toml:12:10
               |
            12 | window = "1 KiB"
               |          ^^^^^^^
               |
               = help: at least 2 KiB (transfer and offset, rounded up to 64 B)"#]],
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
              = help: did you mean `seed`? The keys here are `name`, `summary`, `machine`, `card`, `slot`, `change`, `change_card`, `seed`, `pcie_bench`

            error: `test` cannot be "LAT_WR"
             --> my.toml:8:19
              |
            8 | test = ["LAT_RD", "LAT_WR"]
              |                   ^^^^^^^^
              |
              = help: did you mean `LAT_RD`? It is one of `LAT_RD`, `LAT_WRRD`, `BW_RD`, `BW_WR`, `BW_RDWR`

            error: `pattern` cannot be "random"
             --> my.toml:9:11
              |
            9 | pattern = "random"
              |           ^^^^^^^^
              |
              = help: did you mean `rand`? It is one of `seq`, `rand`

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

/// What only the scenario, the machine and the card together show.
fn check_setup(from: &str, to: &str, expected: Expect) {
    let library = Library::built_in();
    let text = edited("scenarios/remote-memory.toml", from, to);
    let doc = Doc::<Scenario>::from_text(&library, "my.toml", &text);
    expected.assert_eq(&Setup::load(&library, &doc).expect_err("should be refused").render(false));
}

#[test]
fn unknown_machine() {
    check_setup(
        "dell-t430",
        "dell-t340",
        expect![[r#"
            error: there is no machine called `dell-t340`
             --> my.toml:4:11
              |
            4 | machine = "dell-t340"
              |           ^^^^^^^^^^^
              |
              = help: did you mean `dell-t430`? there are `dell-t430`, `dell-t620-ivy`, `dell-t620-sandy`, `dell-t630`, `fujitsu-tx1310`, `i5-2400s`, `supermicro-e5-2637v3`; or give the path of a .toml file"#]],
    );
}

#[test]
fn unknown_socket() {
    check_setup(
        "memory = 1",
        "memory = 2",
        expect![[r#"
        error: `memory`: dell-t430 has no socket 2
          --> my.toml:13:11
           |
        13 | sockets = { device = 0, memory = 2, warming = 1 }
           |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
           |
           = help: sockets are numbered 0 to 1"#]],
    );
}

#[test]
fn unknown_slot() {
    check_setup(
        "[pcie_bench]",
        "slot = \"slot9\"\n\n[pcie_bench]",
        expect![[r#"
        error: dell-t430 has no slot `slot9`
         --> my.toml:7:8
          |
        7 | slot = "slot9"
          |        ^^^^^^^
          |
          = help: its slots are `slot`, `slot-socket1`"#]],
    );
}

#[test]
fn a_wrong_change_of_the_machine() {
    check_setup(
        "[pcie_bench]",
        "[change.host.llc]\nddio_wayz = 4\nways = 7\n\n[pcie_bench]",
        expect![[r#"
            error: `size`: 25 MiB do not divide into sets of 7 lines
              --> machines/dell-t430.toml:47:18
               |
            47 | size = { value = "25 MiB", source = "datasheet: Intel ARK, Xeon E5-2630 v4" }
               |                  ^^^^^^^^
               |
               = help: a multiple of 448 B (7 ways of 64 B)

            error: `slices`: 25 MiB with 7 ways do not divide into 10 slices
              --> machines/dell-t430.toml:49:20
               |
            49 | slices = { value = 10, source = "datasheet: capacity / 2.5 MiB" }
               |                    ^^
               |
               = help: `size` is a multiple of `slices` x `ways` x 64 B

            error: unknown key `ddio_wayz` in `llc`
             --> my.toml:8:1
              |
            8 | ddio_wayz = 4
              | ^^^^^^^^^ not a key of this table
              |
              = help: did you mean `ddio_ways`? The keys here are `size`, `ways`, `slices`, `slice_fold`, `replacement`, `inclusion`, `snoop_filter_size`, `snoop_filter_ways`, `eviction_notice`, `core_hit`, `device_lookup`, `device_return`, `device_commit`, `device_service`, `core_snoop`, `snoop_lookup`, `remote_home_hit`, `ddio_ways`, `device_reads_allocate`, `dirty_eviction`, `acquire`, `background`, `walks_allocate`"#]],
    );
}

#[test]
fn a_machine_that_extends_itself() {
    let folder = std::env::temp_dir().join(format!("nearfar-machine-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("machines")).unwrap();
    std::fs::write(folder.join("machines/loop.toml"), "extends = \"loop\"\n").unwrap();
    let library = Library::built_in().with_folder(&folder);
    let error = Doc::<Machine>::load(&library, "loop").unwrap().read().unwrap_err();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(error.to_string().contains("`extends` goes in a circle"), "{error}");
}

/// What `--set` gets wrong is shown as it was given.
fn check_set(path: &str, value: &str, expected: Expect) {
    let mut doc = Doc::<Machine>::load(&Library::built_in(), "dell-t430").unwrap();
    let error = match doc.set(path, value) {
        Ok(()) => doc.read().expect_err("should be refused"),
        Err(error) => error,
    };
    expected.assert_eq(&error.render(false));
}

#[test]
fn a_value_set_wrongly() {
    check_set(
        "host.llc.ddio_ways",
        "many",
        expect![[r#"
        error: `ddio_ways` takes an integer without a unit, not text
         --> --set:1:20
          |
        1 | host.llc.ddio_ways=many
          |                    ^^^^ this is text"#]],
    );
}

#[test]
fn a_key_set_that_is_not_there() {
    check_set(
        "host.llc.ddioways",
        "4",
        expect![[r#"
            error: unknown key `ddioways` in `llc`
             --> --set:1:1
              |
            1 | host.llc.ddioways=4
              | ^^^^^^^^^^^^^^^^^ not a key of this table
              |
              = help: did you mean `ddio_ways`? The keys here are `size`, `ways`, `slices`, `slice_fold`, `replacement`, `inclusion`, `snoop_filter_size`, `snoop_filter_ways`, `eviction_notice`, `core_hit`, `device_lookup`, `device_return`, `device_commit`, `device_service`, `core_snoop`, `snoop_lookup`, `remote_home_hit`, `ddio_ways`, `device_reads_allocate`, `dirty_eviction`, `acquire`, `background`, `walks_allocate`"#]],
    );
}

#[test]
fn no_path_set() {
    check_set(
        "host..llc",
        "4",
        expect![[r#"
        error: `host..llc` is not a path
         --> --set:1:1
          |
        1 | host..llc=4
          | ^^^^^^^^^
          |
          = help: such as `host.llc.ddio_ways`"#]],
    );
}
