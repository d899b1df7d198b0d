//! Scenarios, with the machines and cards that they name, and what `--set` makes of them.

use expect_test::{Expect, expect};
use machine::{Doc, Library, Machine, Scenario, Setup};

use super::{check_line, edited};

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
              = help: did you mean `dell-t430`?
                      there are `dell-r720`, `dell-r730`, `dell-r760`, `dell-r840`, `dell-t430`, `dell-t620-ivy`, `dell-t620-sandy`, `dell-t630`, `dolphin-e5-1650v4`, `dolphin-e5-2603v4`, `epyc-9224`, `epyc-9224-cxl`, `epyc-9374f`, `epyc-9575f`, `fujitsu-tx1310`, `grace`, `i5-2400s`, `supermicro-e5-2637v3`, `threadripper-7955wx`, `xeon-6980p`, `xeon-6980p-snc3`, `xeon-8160`, `xeon-8280`, `xeon-8592`, `zen-root`; or give the path of a .toml file"#]],
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
              --> machines/dell-t430.toml:58:18
               |
            58 | size = { value = "25 MiB", source = "datasheet: Intel ARK, Xeon E5-2630 v4" }
               |                  ^^^^^^^^
               |
               = help: a multiple of 448 B (7 ways of 64 B)

            error: `slices`: 25 MiB with 7 ways do not divide into 10 slices
              --> machines/dell-t430.toml:60:20
               |
            60 | slices = { value = 10, source = "datasheet: capacity / 2.5 MiB" }
               |                    ^^
               |
               = help: from 1 to 16; `size` is `slices` x a power of two x 448 B (`ways` x 64 B)

            error: unknown key `ddio_wayz` in `llc`
             --> my.toml:8:1
              |
            8 | ddio_wayz = 4
              | ^^^^^^^^^ not a key of this table
              |
              = help: did you mean `ddio_ways`?
                      the keys here are `size`, `ways`, `slices`, `slice_fold`, `replacement`, `inclusion`, `snoop_filter_size`, `snoop_filter_ways`, `eviction_notice`, `core_hit`, `device_lookup`, `device_return`, `device_commit`, `device_service`, `streaming_waits`, `core_snoop`, `snoop_lookup`, `remote_home_hit`, `ddio_ways`, `device_reads_allocate`, `dirty_eviction`, `acquire`, `walks_allocate`"#]],
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
              = help: did you mean `ddio_ways`?
                      the keys here are `size`, `ways`, `slices`, `slice_fold`, `replacement`, `inclusion`, `snoop_filter_size`, `snoop_filter_ways`, `eviction_notice`, `core_hit`, `device_lookup`, `device_return`, `device_commit`, `device_service`, `streaming_waits`, `core_snoop`, `snoop_lookup`, `remote_home_hit`, `ddio_ways`, `device_reads_allocate`, `dirty_eviction`, `acquire`, `walks_allocate`"#]],
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
