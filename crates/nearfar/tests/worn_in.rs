//! A drive whose flash is worn in collects garbage under random writes; what the host deallocates spares it that.

use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer::Computers;
use platform::block::{BlockOp, Segment};
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::memory::Policy;
use platform::storage::{IoCompletions, IoRequest};
use platform::sync::Completion;

const DEPTH: u64 = 256;

/// A PM1725a, its write buffer so small that a short run is over it.
fn drive(worn_in: bool, namespace: &str) -> Computers {
    let text = format!(
        "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n\
         [[host.device]]\ndrive = \"pm1725a\"\nworn_in = {worn_in}\nnamespaces = [\"{namespace}\"]\n\
         change.media.write_buffer = {{ value = \"1 MiB\", source = \"assumed: a test that is over soon\" }}\n"
    );
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::from_text(&library, "test.toml", &text);
    let setup = ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{error}"));
    let computers = Computers::new(&setup).unwrap_or_else(|error| panic!("{error}"));
    computers.boot().unwrap();
    computers
}

/// Random writes of 4 KiB after a while of them, in thousands a second.
fn random_writes(computers: &Computers, seed: u64) -> f64 {
    let (face, result) = (computers.hosts()[0].kernel.face(), Completion::new());
    let told = result.clone();
    computers.hosts()[0].kernel.spawn(TaskParams::named("writer").on(CpuId(0)), move |cpu| {
        Box::pin(async move {
            let file = face.open_block("nvme0n1").unwrap();
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let memory = vec![Segment { at: pages.start, length: 4096 }];
            let completions = IoCompletions::new();
            let mut state = seed;
            let mut request = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let offset = (state >> 20) % (file.bytes() / 4096) * 4096;
                let op = BlockOp::Write { fua: false };
                IoRequest { op, offset, length: 4096, memory: memory.clone(), token: 0 }
            };
            file.submit(&cpu, (0..DEPTH).map(|_| request()).collect(), &completions);
            let (before, counted) = (3_000, 5_000);
            let mut began = cpu.now();
            for n in 0..before + counted {
                if n == before {
                    began = cpu.now();
                }
                completions.next().await.result.unwrap();
                file.submit(&cpu, vec![request()], &completions);
            }
            let rate = f64::from(counted) / cpu.now().since(began).as_ns_f64() * 1e6;
            for _ in 0..DEPTH {
                completions.next().await.result.unwrap();
            }
            face.free_pages(&cpu, pages);
            told.complete(rate);
        })
    });
    computers.simulation().block_on(async move { result.wait().await }).expect("it ends")
}

/// Tells the drive that nothing of it is needed.
fn discard_all(computers: &Computers) {
    let (face, result) = (computers.hosts()[0].kernel.face(), Completion::new());
    let told = result.clone();
    computers.hosts()[0].kernel.spawn(TaskParams::named("discard"), move |cpu| {
        Box::pin(async move {
            let file = face.open_block("nvme0n1").unwrap();
            let completions = IoCompletions::new();
            let mut offset = 0;
            while offset < file.bytes() {
                let length = (file.bytes() - offset).min(512 << 30);
                let request =
                    IoRequest { op: BlockOp::Discard, offset, length, memory: Vec::new(), token: 0 };
                file.submit(&cpu, vec![request], &completions);
                completions.next().await.result.unwrap();
                offset += length;
            }
            told.complete(());
        })
    });
    computers.simulation().block_on(async move { result.wait().await }).expect("it ends");
}

/// The drive's whole capacity.
const WHOLE: &str = "6401252745216 B";

#[test]
fn random_writes_are_slow_on_a_drive_that_is_worn_in_until_it_is_discarded() {
    let fresh = random_writes(&drive(false, WHOLE), 1);
    let computers = drive(true, WHOLE);
    let worn_in = random_writes(&computers, 2);
    discard_all(&computers);
    let discarded = random_writes(&computers, 3);
    println!("fresh {fresh:.0} k/s, worn in {worn_in:.0} k/s, discarded {discarded:.0} k/s");
    assert!(worn_in < 0.6 * fresh, "{worn_in:.0} k/s, fresh {fresh:.0}");
    // Fresh it is the core that limits, or the dies: a discarded one erases blocks besides.
    assert!(discarded > 0.85 * fresh, "{discarded:.0} k/s, fresh {fresh:.0}");
}

/// Capacity that no namespace has is room to spare: the smaller the namespace, the less there is to move.
#[test]
fn a_small_namespace_spares_the_drive_its_garbage() {
    let rates =
        ["5 TiB", "3 TiB", "64 GiB"].map(|namespace| (namespace, random_writes(&drive(true, namespace), 4)));
    let computers = drive(true, "64 GiB");
    discard_all(&computers);
    let discarded = random_writes(&computers, 5);
    println!("{rates:?}, discarded {discarded:.0} k/s");
    assert!(rates.is_sorted_by(|a, b| a.1 < 0.95 * b.1), "{rates:?} k/s");
    assert!((0.9..1.1).contains(&(discarded / rates[2].1)), "{discarded:.0} k/s of {:.0}", rates[2].1);
}
