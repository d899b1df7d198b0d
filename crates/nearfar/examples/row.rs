//! temp
use machine::*;
use nearfar::bench::*;
use results::pciebench::*;
use units::Bytes;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let dir = std::path::Path::new(&a[1]);
    let name = dir.file_name().unwrap().to_str().unwrap();
    let lib = Library::built_in();
    let run = MeasuredRun::find(&lib, name, None).unwrap_or_else(|e| panic!("{}", e.render(false)));
    let b = Bench {
        machine: run.machine.read().unwrap(),
        card: run.card.read().unwrap(),
        sockets: run.placement.sockets,
        iommu: run.placement.iommu,
        seed: 1,
    };
    let d = read_directory(dir).unwrap();
    let t0 = std::time::Instant::now();
    let mut tl = 0;
    let mut n = 0;
    for f in &d.files {
        if !f.name.contains(&a[2]) {
            continue;
        }
        for (i, r) in f.rows().iter().enumerate() {
            let t = std::time::Instant::now();
            match b.run(r.run(), Effort::default()) {
                Ok(o) => {
                    tl += o.tlps;
                    n += 1;
                    let e = 100.0 * (o.headline() - r.headline()) / r.headline();
                    println!(
                        "{} {} {} meas {:.2} sim {:.2} err {:+.2}% hw {:.3} faulty {} {:.1}ms avg {:.1}",
                        f.name,
                        i + 1,
                        r.run(),
                        r.headline(),
                        o.headline(),
                        e,
                        o.half_width,
                        o.faulty,
                        t.elapsed().as_secs_f64() * 1e3,
                        if let Row::Latency(l) = &o.row { l.ns.average } else { 0.0 }
                    );
                }
                Err(e) => println!("{} {}", r.run(), e),
            }
        }
    }
    let s = t0.elapsed().as_secs_f64();
    eprintln!("{n} rows {s:.1}s {tl} TLPs {:.2} M/s", tl as f64 / s / 1e6);
    let _ = Bytes::ZERO;
}
