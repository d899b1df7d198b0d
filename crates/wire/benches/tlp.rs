//! What encoding and decoding a header costs.

use divan::{Bencher, black_box};
use wire::pcie::{Bdf, CompletionHeader, MemoryRequest, Tlp, TlpKind};

fn main() {
    divan::main();
}

fn examples() -> [(&'static str, Tlp); 4] {
    let request = |address, len| MemoryRequest::for_bytes(Bdf::new(3, 0, 0), 5, address, len);
    let high = request(0x12_3456_7000, 256);
    let completion = CompletionHeader::with_data(Bdf::new(0, 0, 0), &high, 0x12_3456_7000, 256, 256);
    [
        ("MRd", Tlp::new(TlpKind::MemoryRead(high))),
        ("MWr", Tlp::new(TlpKind::MemoryWrite(high))),
        ("MWr unaligned", Tlp::new(TlpKind::MemoryWrite(request(0x12_3456_7003, 63)))),
        ("CplD", Tlp::new(TlpKind::CompletionData(completion))),
    ]
}

const NAMES: [&str; 4] = ["MRd", "MWr", "MWr unaligned", "CplD"];

fn example(name: &str) -> Tlp {
    examples().into_iter().find(|e| e.0 == name).expect("NAMES lists the examples").1
}

#[divan::bench(args = NAMES)]
fn emit(bencher: Bencher, name: &str) {
    let tlp = example(name);
    let mut buf = [0; 16];
    bencher.bench_local(|| {
        black_box(&tlp).emit(&mut buf);
        black_box(&buf);
    });
}

#[divan::bench(args = NAMES)]
fn parse(bencher: Bencher, name: &str) {
    let mut buf = [0; 16];
    example(name).emit(&mut buf);
    // By reference: a copy of the result would cost as much as making it.
    bencher.bench_local(|| {
        black_box(&Tlp::parse(black_box(&buf)));
    });
}
