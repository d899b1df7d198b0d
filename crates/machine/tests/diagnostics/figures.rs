//! Figures of machines and parts.

use expect_test::expect;

use super::{T430, check_line};

#[test]
fn unknown_key() {
    check_line(
        T430,
        "ddio_ways",
        r#"ddio_way = { value = 2, source = "fitted: x" }"#,
        expect![[r#"
            error: `ddio_ways` is missing
              --> my.toml:57:1
               |
            57 | [host.llc]
               | ^^^^^^^^^^ in this table

            error: unknown key `ddio_way` in `llc`
              --> my.toml:73:1
               |
            73 | ddio_way = { value = 2, source = "fitted: x" }
               | ^^^^^^^^ not a key of this table
               |
               = help: did you mean `ddio_ways`?
                       the keys here are `size`, `ways`, `slices`, `slice_fold`, `replacement`, `inclusion`, `snoop_filter_size`, `snoop_filter_ways`, `eviction_notice`, `core_hit`, `device_lookup`, `device_return`, `device_commit`, `device_service`, `streaming_waits`, `core_snoop`, `snoop_lookup`, `remote_home_hit`, `ddio_ways`, `device_reads_allocate`, `dirty_eviction`, `acquire`, `walks_allocate`"#]],
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
              --> my.toml:65:22
               |
            65 | core_hit = { value = "20 nanoseconds", source = "fitted: x" }
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
              --> my.toml:65:22
               |
            65 | core_hit = { value = 20, source = "fitted: x" }
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
              --> my.toml:84:31
               |
            84 | channel_bandwidth = { value = "17 Gbit/s", source = "fitted: x" }
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
              --> my.toml:65:1
               |
            65 | core_hit = "20 ns"
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
              --> my.toml:65:12
               |
            65 | core_hit = { value = "20 ns" }
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
              --> my.toml:65:40
               |
            65 | core_hit = { value = "20 ns", source = "my guess" }
               |                                        ^^^^^^^^^^
               |
               = help: begin it with its kind and a colon: `fitted`, `fitted by hand`, `empirical`, `measured`, `datasheet`, `specification`, `relative`, `assumed`, `override`"#]],
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
               --> my.toml:148:19
                |
            148 | width = { value = 3, source = "measured: x" }
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
               --> my.toml:149:23
                |
            149 | mps_bytes = { value = 300, source = "measured: x" }
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
              --> my.toml:43:8
               |
            43 | size = "100000 B"
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
              --> my.toml:73:23
               |
            73 | ddio_ways = { value = 21, source = "fitted: x" }
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
               --> my.toml:197:21
                |
            197 | walkers = { value = 0, source = "fitted: x" }
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
               --> my.toml:108:26
                |
            108 | remote_write = { value = "allocate-at-device", source = "fitted: x" }
                |                          ^^^^^^^^^^^^^^^^^^^^
                |
                = help: one of `allocate-at-device-socket`, `write-home-keep-copy`, `allocate-at-home-socket`, `to-home-memory`"#]],
    );
}

#[test]
fn refresh_longer_than_its_interval() {
    check_line(
        T430,
        "refresh_duration",
        r#"refresh_duration = { value = "9 us", source = "fitted: x" }"#,
        expect![[r#"
            error: `refresh_duration`: a refresh of 9 µs does not end within its interval of 7.8 µs
              --> my.toml:94:30
               |
            94 | refresh_duration = { value = "9 us", source = "fitted: x" }
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
               --> my.toml:101:19
                |
            101 | links = { value = [[0, 2]], source = "datasheet: x" }
                |                   ^^^^^^^^
                |
                = help: sockets are numbered 0 to 1

            error: `links`: some sockets cannot be reached from socket 0
               --> my.toml:101:19
                |
            101 | links = { value = [[0, 2]], source = "datasheet: x" }
                |                   ^^^^^^^^
                |
                = help: add links until every socket can be reached"#]],
    );
}

#[test]
fn a_pair_of_sockets_joined_twice() {
    check_line(
        T430,
        "links",
        r#"links = { value = [[0, 1], [1, 0]], source = "datasheet: x" }"#,
        expect![[r#"
            error: `links`: sockets 0 and 1 are joined twice
               --> my.toml:101:19
                |
            101 | links = { value = [[0, 1], [1, 0]], source = "datasheet: x" }
                |                   ^^^^^^^^^^^^^^^^
                |
                = help: each pair is in one of `interconnect.links` and `interconnect.near.links`; `bandwidth` is that of all links of a pair"#]],
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
               --> my.toml:160:6
                |
            160 | pd = 8
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
              --> my.toml:57:1
               |
            57 | [host.llc]
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
fn empirical_without_its_worth() {
    check_line(
        T430,
        "core_hit",
        r#"core_hit = { value = "20 ns", source = "empirical: x" }"#,
        expect![[r#"
            error: `core_hit` is empirical and does not say what results are without it
              --> my.toml:65:12
               |
            65 | core_hit = { value = "20 ns", source = "empirical: x" }
               |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
               |
               = help: write `without = "0 ns: bw_dma_sz_sweep 1.1 / 3.9 % instead of 0.4 / 3.9 %"` beside its value: `nearfar compare --set` tells"#]],
    );
}

#[test]
fn worth_of_what_is_not_empirical() {
    check_line(
        T430,
        "core_hit",
        r#"core_hit = { value = "20 ns", source = "fitted: x", without = "0 ns: worse" }"#,
        expect![[r#"
            error: `core_hit` is not empirical, so `without` says nothing
              --> my.toml:65:53
               |
            65 | core_hit = { value = "20 ns", source = "fitted: x", without = "0 ns: worse" }
               |                                                     ^^^^^^^
               |
               = help: take `without` away, or begin the source with `empirical:`"#]],
    );
}

#[test]
fn half_of_a_pair() {
    check_line(
        T430,
        "small_up_to",
        r#"small_up_to = { value = "256 B", source = "fitted: x" }
largest = { value = "256 B", source = "fitted: x" }"#,
        expect![[r#"
            error: `largest`: only one of `largest` and `largest_from` is given
               --> my.toml:136:21
                |
            136 | largest = { value = "256 B", source = "fitted: x" }
                |                     ^^^^^^^
                |
                = help: both, or neither: no request is very large then"#]],
    );
}
