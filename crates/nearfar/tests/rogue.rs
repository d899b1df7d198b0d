//! Rogue functions of scenarios, by an event or by a program, in each cell of the isolation table: with and without peers, in
//! slots of the root complex and below a switch with access control. Each request ends where the table says.
//!
//! CI sends some in each cell; `NEARFAR_ROGUE_TRIES=100000 cargo test --release -p nearfar --test all rogue` sends that many.

use crate::scenario::{AtEnd, HEAD, event, host, load, loaded, program};
use devices::rogue::LINE;
use machine::DmaMode;
use nearfar::Silent;
use nearfar::computer::{Computers, FinishedProgram, run_watched};
use rayon::prelude::*;
use settings::{FunctionHolder, FunctionReach, ReachExtent, isolation};
use workloads::Report;

const MODES: [DmaMode; 4] = [DmaMode::Off, DmaMode::PassThrough, DmaMode::Strict, DmaMode::Lazy];

#[derive(Clone, Copy, Debug)]
struct Cell {
    lender: DmaMode,
    holder: FunctionHolder,
    /// Whether the holder has a second function of the same host.
    peers: bool,
    /// Whether both are below a switch, whose ports have access control.
    switched: bool,
}

fn cells() -> Vec<Cell> {
    let host = MODES.map(FunctionHolder::Host);
    let guest = MODES.map(FunctionHolder::RemoteGuest);
    let holders = [&host[..], &guest, &[FunctionHolder::OwnGuest]].concat();
    let all =
        MODES.into_iter().flat_map(|lender| holders.clone().into_iter().map(move |holder| (lender, holder)));
    let shapes = [(false, false), (false, true), (true, false), (true, true)];
    all.flat_map(|(lender, holder)| shapes.map(|(peers, switched)| Cell { lender, holder, peers, switched }))
        .collect()
}

const GUEST: &str = "[[host.vm]]\nname = \"x\"\nvcpus = \"2-3\"\nmemory = \"512 MiB\"\n";

fn text(cell: Cell, attack: &str) -> String {
    let Cell { lender, holder, peers, switched } = cell;
    let switch = if switched { "[[host.switch]]\nname = \"sw\"\npart = \"pex8733\"\n" } else { "" };
    let drive = |name: &str, port: u8| {
        let slot = if switched { format!("slot = \"sw:{port}\"\n") } else { String::new() };
        format!("[[host.device]]\nname = \"{name}\"\ndrive = \"optane-900p\"\n{slot}")
    };
    let with = |mode: DmaMode, lines: &str| {
        format!("iommu = \"{mode}\"\nchange.host.dram.size = \"8 GiB\"\n{lines}")
    };
    let drives = [switch, &drive("ssd", 1), &drive("other", 2)].concat();
    let ntb = "[[host.device]]\nname = \"n\"\nntb = \"pxh830\"\n";
    let cable = "[[ntb_cable]]\nends = [\"a:n\", \"b:n\"]\n";
    let loans = |by: &str| {
        let of = |name: &str| format!("[[borrow]]\nfunction = \"b:{name}\"\nby = \"{by}\"\n");
        of("ssd") + &if peers { of("other") } else { String::new() }
    };
    let b = |lines: &str| host("b", "dell-t430", &with(lender, lines));
    let body = match holder {
        FunctionHolder::Host(mode) => {
            [host("a", "dell-t430", &with(mode, ntb)), b(&(drives + ntb)), cable.into(), loans("a")].concat()
        }
        FunctionHolder::RemoteGuest(mode) => {
            let a = host("a", "dell-t430", &with(mode, &[ntb, GUEST].concat()));
            [a, b(&(drives + ntb)), cable.into(), loans("a/x")].concat()
        }
        FunctionHolder::OwnGuest => {
            let devices = if peers { "devices = [\"ssd\", \"other\"]\n" } else { "devices = [\"ssd\"]\n" };
            b(&[&drives, GUEST, devices].concat())
        }
    };
    [HEAD, &body, attack].concat()
}

fn place(holder: FunctionHolder) -> &'static str {
    match holder {
        FunctionHolder::Host(_) => "a",
        FunctionHolder::RemoteGuest(_) => "a/x",
        FunctionHolder::OwnGuest => "b/x",
    }
}

fn tries() -> u32 {
    let given = std::env::var("NEARFAR_ROGUE_TRIES").ok();
    given.map_or(60, |given| given.parse().expect("a number of tries"))
}

/// Lines that a rogue function has written into memory of a host that is not its guest's.
fn outside_guests(computers: &Computers, name: &str) -> usize {
    let host = computers.hosts().iter().find(|host| host.name == name).expect("it is there");
    let mut guests = Vec::new();
    for vm in host.vms() {
        for (start, length) in vm.memory().ranges().into_iter().flatten() {
            let mut at = start;
            while let Some((place, bytes)) = vm.memory().place(at).filter(|_| at.0 < start.0 + length) {
                guests.push((place, bytes));
                at = at + bytes;
            }
        }
    }
    computers.simulation().with(|fabric, _| {
        let written = fabric.host(host.host).memory.bytes().written();
        let strange = written.filter(|(at, _)| {
            !guests.iter().any(|&(start, length)| (start.0..start.0 + length).contains(&at.get()))
        });
        strange.flat_map(|(_, bytes)| bytes.chunks(LINE.len())).filter(|line| *line == LINE).count()
    })
}

fn attacked(cell: Cell, reach: FunctionReach) {
    // The event begins while the holder's driver is at work; a program does the same from within.
    let is_event = cell.switched == cell.peers;
    let attack = match is_event {
        true => [
            event("20 us", "rogue", "b:ssd", &format!("tries = {}", tries())),
            program(place(cell.holder), "0", "fio --direct=1 --rw=read --bs=4k --size=16k"),
        ]
        .concat(),
        false => program(place(cell.holder), "0", &format!("rogue-dma b:ssd --tries={}", tries())),
    };
    let mut outside = [0, 0];
    let done = {
        let setup = loaded(&text(cell, &attack));
        let mut at_end = AtEnd(|computers: &Computers| {
            let has_a = computers.hosts().len() > 1;
            outside =
                [if has_a { outside_guests(computers, "a") } else { 0 }, outside_guests(computers, "b")];
        });
        run_watched(&setup, &Silent, &mut at_end).unwrap_or_else(|error| panic!("{cell:?}: {error}"))
    };
    let of = |done: &&FinishedProgram| done.run.starts_with("rogue");
    let rogue = done.iter().find(of).unwrap_or_else(|| panic!("{cell:?}: {done:?}"));
    let report: &Report = rogue.outcome.as_ref().unwrap_or_else(|failure| panic!("{cell:?}: {failure}"));
    println!(
        "{cell:?}: {:?}",
        report.readings.iter().map(|own| (&*own.quantity, own.value)).collect::<Vec<_>>()
    );
    let count = |begin: &str| {
        let own = report.readings.iter().filter(|reading| reading.quantity.starts_with(begin));
        own.map(|reading| reading.value as u32).sum::<u32>()
    };
    let ends = ["stopped by", "reached", "interrupted", "never answered"].map(count);
    assert_eq!(ends.iter().sum::<u32>(), tries(), "{cell:?}: each ends once: {report:?}");
    let confined = reach.of_own != ReachExtent::Everything;
    let own_guest = cell.holder == FunctionHolder::OwnGuest;
    if confined {
        assert_eq!(outside[1], 0, "{cell:?}: memory of the function's host");
        assert!(own_guest || count("reached memory of b") == 0, "{cell:?}: {report:?}");
        // Access control sends what is for a neighbour up to the IOMMU. In a guest, a function finds its own registers.
        assert!(cell.peers || own_guest || count("reached a device") == 0, "{cell:?}: {report:?}");
        assert!(count("stopped by IOMMU") > 0, "{cell:?}: {report:?}");
    } else {
        assert!(count("reached a device") > 0 && count("reached memory of b") > 0, "{cell:?}: {report:?}");
    }
    if reach.of_holder == ReachExtent::Guest {
        assert_eq!(outside, [0, 0], "{cell:?}: memory that is no guest's");
    }
    if !is_event {
        return;
    }
    let fio = done.iter().find(|done| done.run.starts_with("fio")).expect("it ran");
    assert!(!confined || fio.outcome.is_ok(), "{cell:?}: the driver's own requests go on: {fio:?}");
}

#[test]
fn a_rogue_function_of_a_scenario_ends_where_the_table_says() {
    // Both shapes of a mode and a holder differ in one thing only if all run.
    let all = cells();
    let is_whole = tries() > 1000;
    let chosen: Vec<Cell> = match is_whole {
        true => all,
        false => {
            all.into_iter().enumerate().filter(|(n, _)| n % 4 == (n / 4) % 4).map(|(_, cell)| cell).collect()
        }
    };
    let refused = chosen.par_iter().filter(|&&cell| match isolation(cell.lender, cell.holder) {
        Ok(reach) => {
            attacked(cell, reach);
            false
        }
        Err(refusal) => {
            let said = load(&text(cell, "")).expect_err("the table refuses it").render(false);
            assert!(said.contains(&refusal.to_string()), "{cell:?}: {said}");
            true
        }
    });
    // Guests of a lender without an IOMMU, and of borrowers whose IOMMU does not translate.
    assert_eq!(refused.count(), if is_whole { 4 * 11 } else { 11 });
}

/// Without access control, a switch sends a request straight to the neighbour, and no IOMMU sees it.
#[test]
fn access_control_is_what_keeps_neighbours_apart() {
    let reached = |iommu: &str, change: &str| {
        let switch = format!("[[host.switch]]\nname = \"sw\"\npart = \"pex8733\"\n{change}\n");
        let drive = |name: &str, port: u8| {
            format!("[[host.device]]\nname = \"{name}\"\ndrive = \"optane-900p\"\nslot = \"sw:{port}\"\n")
        };
        let lines = format!("iommu = \"{iommu}\"\n{switch}{}{}", drive("ssd", 1), drive("other", 2));
        let attack = program("b", "0", "rogue-dma b:ssd --tries=200 --seed=3");
        let text = [HEAD, &host("b", "dell-t430", &lines), &attack].concat();
        let done = nearfar::computer::run(&loaded(&text), &Silent).unwrap();
        let report = done[0].outcome.clone().unwrap();
        let own = report.readings.iter().filter(|reading| reading.quantity.starts_with("reached a device"));
        own.map(|reading| reading.value).sum::<f64>()
    };
    let without = "change.access_control = { value = false, source = \"assumed: test\" }";
    assert_eq!(reached("strict", ""), 0.0);
    assert!(reached("strict", without) > 0.0 && reached("off", "") > 0.0);
}

#[test]
fn a_program_attacks_only_with_what_its_host_has() {
    let refused = |run: &str| {
        let drive = "iommu = \"strict\"\n[[host.device]]\nname = \"ssd\"\ndrive = \"optane-900p\"";
        let setup = loaded(&[HEAD, &host("b", "dell-t430", drive), &program("b", "0", run)].concat());
        crate::scenario::check(&setup).expect_err("it is refused").render(false)
    };
    for (run, words) in [
        ("rogue-dma b:other", "it has b:ssd"),
        ("rogue-dma", "<FUNCTION>"),
        ("rogue-dma b:ssd --tries=0", "0 is not in 1..="),
        ("rogue-dma b:ssd --tries=4294967297", "4294967297 is not in 1..="),
    ] {
        let said = refused(run);
        assert!(said.contains(words), "{run}: {said}");
    }
}
