//! Training steps of a neural network on several GPUs: images from a drive, weights to the GPUs, gradients back.
//!
//! Computation is not simulated, only its duration, which the options give; reads and copies are simulated. The
//! phases of a step are sequential: cores read and prepare images, weights and images go to all GPUs at once, the
//! GPUs compute, their gradients come back, and a core adds them up.

use std::rc::Rc;

use platform::block::{BlockOp, Segment};
use platform::cpu::{Async, Cpu};
use platform::kernel::TaskParams;
use platform::storage::{BlockFile, IoCompletions, IoRequest};
use units::{Duration, Time};
use wire::gpu::{Launch, Place, Program as Kernel};

use super::stream::CudaStream;
use super::{Context, HostMemory, gpu};
use crate::options;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::random::Random;

/// Cycles to add a doubleword of gradients to the weights (assumed: two loads and a store, not in caches).
const UPDATE: u64 = 2;

/// Runs training steps and reports the duration of each phase.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "gpu-train")]
pub struct GpuTrain {
    /// Number of GPUs, from the first on.
    #[arg(long, default_value_t = 2)]
    gpus: u32,
    /// The drive that holds the images.
    #[arg(long, default_value = "/dev/nvme0n1")]
    disk: String,
    /// Images per step, for all GPUs together.
    #[arg(long, default_value_t = 32)]
    batch: u32,
    /// Bytes of an image on the drive.
    #[arg(long, value_parser = options::size, default_value = "128k")]
    image: u64,
    /// Bytes of an image in GPU memory.
    #[arg(long, value_parser = options::size, default_value = "588k")]
    tensor: u64,
    /// Bytes of the weights, and of their gradients.
    #[arg(long, value_parser = options::size, default_value = "8m")]
    weights: u64,
    /// Time for a core to prepare an image.
    #[arg(long, value_parser = options::time, default_value = "1ms")]
    prepare: Duration,
    /// Time for a GPU to compute an image.
    #[arg(long, value_parser = options::time, default_value = "1ms")]
    compute: Duration,
    /// Number of threads that prepare images.
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// Number of steps.
    #[arg(long, default_value_t = 1)]
    steps: u32,
}

/// State of a GPU.
struct Replica {
    context: Rc<Context>,
    stream: CudaStream,
    /// Address of weights, images and gradients.
    device: Place,
    host: Place,
}

impl GpuTrain {
    /// Bytes of a step's images per GPU.
    fn share(&self) -> u64 {
        u64::from(self.batch / self.gpus.max(1)).saturating_mul(self.tensor)
    }

    /// Reads and prepares a worker's images for a step.
    async fn load(
        self: Rc<Self>,
        cpu: Cpu,
        file: Rc<dyn BlockFile>,
        memory: HostMemory,
        seed: (u64, u64),
    ) -> Result<(), Failure> {
        let mut random = Random::new(seed.0, seed.1);
        let places = file.bytes() / self.image;
        for _ in 0..self.batch.div_ceil(self.workers) {
            let completions = IoCompletions::new();
            let segment = Segment { at: memory.start(), length: self.image as u32 };
            let offset = random.below(places.max(1)) * self.image;
            let request =
                IoRequest { op: BlockOp::Read, offset, length: self.image, memory: vec![segment], token: 0 };
            file.submit(&cpu, vec![request], &completions);
            let done = completions.next().await;
            done.result.map_err(|error| Failure::about("gpu-train: an image", error))?;
            let until = cpu.now() + self.prepare;
            while cpu.now() < until {
                // A computing thread is preempted from time to time.
                cpu.stall(Duration::from_us(100).min(until.since(cpu.now())));
                cpu.sync().await;
            }
        }
        Ok(())
    }

    /// Runs all workers, each in its own task.
    async fn load_all(
        self: &Rc<Self>,
        cpu: &Cpu,
        environment: &Environment,
        file: &Rc<dyn BlockFile>,
        memory: &[HostMemory],
        step: u32,
    ) -> Result<(), Failure> {
        let begin = |(worker, &memory): (usize, &HostMemory)| {
            let (me, file) = (Rc::clone(self), Rc::clone(file));
            let seed = (environment.seed, u64::from(step) << 16 | worker as u64);
            let params = TaskParams::named("gpu-train").of(cpu);
            environment.kernel.run(params, async move |cpu| me.load(cpu, file, memory, seed).await)
        };
        let workers: Vec<_> = memory.iter().enumerate().map(begin).collect();
        for worker in workers {
            worker.wait().await?;
        }
        Ok(())
    }

    async fn train(self: &Rc<Self>, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let kernel = &*environment.kernel;
        let missing = || Failure(format!("gpu-train: there is no '{}'", self.disk));
        let file = kernel.open_block(&self.disk).ok_or_else(missing)?;
        let bytes = self.weights + self.share();
        let host = HostMemory::take(kernel, cpu, bytes)?;
        let images: Vec<HostMemory> =
            (0..self.workers).map(|_| HostMemory::take(kernel, cpu, self.image)).collect::<Result<_, _>>()?;
        let mut replicas = Vec::new();
        for number in 0..self.gpus {
            let context = Context::open(cpu, &*gpu(kernel, number)?)?;
            let device = context.malloc(cpu, bytes)?.place;
            let place = context.map(cpu, &host)?;
            replicas.push(Replica { context, stream: CudaStream::default(), device, host: place });
        }
        let per_gpu = self.compute.as_ps() / 1_000 * u64::from(self.batch / self.gpus);
        let none = Place::default();
        let launch = Launch {
            program: Kernel::Busy,
            polled: none,
            written: none,
            result: none,
            count: u32::try_from(per_gpu).unwrap_or(u32::MAX),
        };
        let mut parts = [Duration::ZERO; 5];
        for step in 0..self.steps {
            let mut before: Time = cpu.now();
            let mut part = |number: usize| {
                let now = cpu.now();
                parts[number] += now.since(before);
                before = now;
            };
            self.load_all(cpu, environment, &file, &images, step).await?;
            part(0);
            for (number, bytes) in [(1, self.weights + self.share()), (2, 0), (3, self.weights)] {
                for replica in &mut replicas {
                    let (context, ends) = (&replica.context, (replica.device, replica.host));
                    match number {
                        1 => replica.stream.copy_in(cpu, context, ends, bytes).await?,
                        2 => replica.stream.launch(cpu, context, launch).await?,
                        _ => replica.stream.copy_out(cpu, context, (ends.1, ends.0), bytes).await?,
                    }
                }
                for replica in &replicas {
                    replica.stream.synchronise(cpu).await?;
                }
                part(number);
            }
            cpu.cycles(UPDATE * self.weights / 4 * u64::from(self.gpus)).await;
            part(4);
        }
        replicas.iter().for_each(|replica| replica.context.close(cpu));
        images.into_iter().chain([host]).for_each(|memory| memory.give(kernel, cpu));
        let mut report = Report::default();
        for (name, time) in ["load", "in", "compute", "out", "update"].into_iter().zip(parts) {
            report.add(name, "ms", time.as_s_f64() * 1e3 / f64::from(self.steps));
        }
        Ok(report)
    }
}

impl Program for GpuTrain {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        Refused::unless(self.gpus > 0, "gpu-train: no GPU trains nothing", "`--gpus 1` or more")?;
        premises.gpu("gpu-train", self.gpus - 1)?;
        let disk = premises.disk("gpu-train", &self.disk)?;
        let message = format!("gpu-train: images of {} bytes are not possible on {}", self.image, self.disk);
        let fits = self.image > 0 && self.image % disk.block.max(1) == 0 && self.image <= disk.bytes;
        Refused::unless(fits, message, format!("multiples of {}, no more than it holds", disk.block))?;
        let message =
            format!("gpu-train: {} steps of {} images by {} workers", self.steps, self.batch, self.workers);
        let some = self.steps > 0
            && self.workers > 0
            && self.batch >= self.gpus
            && self.weights > 0
            && self.tensor > 0;
        Refused::unless(some, message, "at least one of each, and an image for each GPU")?;
        premises.holds("gpu-train", "weights and images", u128::from(self.weights) + u128::from(self.share()))
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.train(&cpu, &environment).await })
    }
}
