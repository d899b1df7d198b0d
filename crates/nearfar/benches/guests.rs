//! What simulating guests costs: processor time for each event of eight guests of four vCPUs, all busy, beside the same programs on the
//! same cores of the host. The aim, printed and not asserted, is 1.5 times. `cargo bench -p nearfar --bench guests -- QUICK` takes a
//! fifth of the time; `stream` or `fio` behind it takes that alone.

#[path = "clock/mod.rs"]
mod clock;
#[path = "../tests/scenario/mod.rs"]
mod scenario;

use clock::seconds_of_work;
use nearfar::computer::{Computers, Observer, run_watched};
use nearfar::progress::Silent;
use scenario::{HEAD, host, loaded, program};

const GUESTS: usize = 8;
const VCPUS: usize = 4;

/// Processor time and events, from when all have booted to the programs' end.
#[derive(Default)]
struct Watch {
    began: (f64, u64),
    took: (f64, u64),
}

impl Observer for Watch {
    fn booted(&mut self, computers: &Computers) {
        self.began = (seconds_of_work(), computers.simulation().processed());
    }

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, computers: &Computers) {
        self.took = (seconds_of_work() - self.began.0, computers.simulation().processed() - self.began.1);
    }
}

/// A host of 32 cores with a drive for each guest, and a program for each four cores: in guests, or not.
fn scenario(in_guests: bool, run: impl Fn(usize) -> String) -> String {
    let mut lines = "iommu = \"strict\"\nchange.host.core.count = 16\n".to_owned();
    lines += "[[host.switch]]\nname = \"sw\"\npart = \"pex8796\"\nslot = \"slot\"\n";
    for n in 0..GUESTS {
        lines +=
            &format!("[[host.device]]\nname = \"d{n}\"\ndrive = \"optane-900p\"\nslot = \"sw:{}\"\n", n + 1);
    }
    let cores = |n: usize| format!("{}-{}", n * VCPUS, (n + 1) * VCPUS - 1);
    for n in (0..GUESTS).filter(|_| in_guests) {
        lines += &format!("[[host.vm]]\nname = \"x{n}\"\nvcpus = \"{}\"\n", cores(n));
        lines += &format!("memory = \"256 MiB\"\ndevices = [\"d{n}\"]\n");
    }
    let programs = (0..GUESTS).map(|n| match in_guests {
        true => program(&format!("a/x{n}"), "0-3", &run(0)),
        false => program("a", &cores(n), &run(n)),
    });
    HEAD.to_owned() + &host("a", "dell-t430", &lines) + &programs.collect::<String>()
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|asked| !asked.starts_with('-')).collect();
    let quick = asked.iter().any(|asked| asked == "QUICK");
    let wanted = |what: &str| asked.iter().all(|asked| asked == "QUICK" || asked == what);
    let times = if quick { 3 } else { 15 };
    let stream = move |_| format!("stream --array-size=400000 --ntimes={times}");
    let fio = move |n: usize| {
        let fio = format!(
            "fio --filename=/dev/nvme{n}n1 --rw=randread --bs=4k --numjobs=4 --ioengine=libaio --iodepth=16"
        );
        format!("{fio} --runtime={times}ms")
    };
    if wanted("stream") {
        compare("stream", stream);
    }
    if wanted("fio") {
        compare("fio", fio);
    }
}

fn compare(what: &str, run: impl Fn(usize) -> String) {
    let cost = |in_guests: bool| {
        let (setup, mut watch) = (loaded(&scenario(in_guests, &run)), Watch::default());
        let done = run_watched(&setup, &Silent, &mut watch).unwrap_or_else(|error| panic!("{error}"));
        done.iter().for_each(|done| assert!(done.outcome.is_ok(), "{done:?}"));
        let (seconds, events) = watch.took;
        let place = if in_guests { "in 8 guests of 4 vCPUs" } else { "on the host" };
        println!(
            "{what} {place}: {events} events, {:.0} ns of processor time each",
            seconds / events as f64 * 1e9
        );
        seconds / events as f64
    };
    let [native, guests] = [false, true].map(cost);
    println!("{what}: an event takes {:.2} times as long in guests (aim: 1.5)", guests / native);
}
