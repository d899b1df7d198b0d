//! PageRank as in the GAP benchmark suite's `pr`: parallel pull iterations in single precision with double buffering.
//!
//! As in the original, the graph is generated before the measurement: 2^scale nodes with the given degree, drawn like
//! Kronecker graphs (A 0.57, B 0.19, C 0.19) and stored by incoming edges. Nodes are divided evenly among threads;
//! each thread's data are in its core's node.

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Sweep};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{PhysAddr, Policy};
use platform::sync::Completion;
use units::Duration;

use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::random::Random;
use crate::scattered::Scattered;

/// The damping factor.
const DAMPING: f32 = 0.85;
/// Node numbers per cache line.
const LINE: usize = 16;
/// Loads of scattered ranks before other cores get to run in the simulation.
const TURN: usize = 64;
/// Latency of a dependent addition in cycles (Agner Fog, addss on Haswell and Broadwell): unless it may reorder
/// floats, the compiler adds a node's neighbours one by one.
const ADD: u64 = 3;
/// Steps of equal numbers of edges per iteration and thread, to measure the variation.
const STEPS: usize = 40;

/// Computes the PageRank of a generated graph.
#[derive(clap::Parser, Clone, Copy, PartialEq, Eq, Debug)]
#[command(name = "pr", disable_help_flag = true)]
pub struct PageRank {
    /// Generates a graph of 2^scale nodes.
    #[arg(short = 'g', default_value_t = 16, value_parser = clap::value_parser!(u32).range(4..=24))]
    scale: u32,
    /// Edges per node.
    #[arg(short = 'k', default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    degree: u32,
    /// Iterations over all edges.
    #[arg(short = 'i', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,
}

/// A thread's data: incoming edges of its nodes, and their ranks in two rounds.
struct ThreadData {
    edges: Scattered,
    ranks: [Scattered; 2],
}

/// The graph, by incoming edges.
struct Graph {
    nodes: u32,
    /// Index of each node's first incoming edge.
    begins: Vec<u32>,
    from: Vec<u32>,
    /// Number of outgoing edges of each node.
    out: Vec<u32>,
}

impl Graph {
    /// A Kronecker graph (Graph500's parameters).
    fn make(scale: u32, degree: u32, seed: u64) -> Self {
        let nodes = 1u32 << scale;
        let mut random = Random::new(seed, 0);
        let mut edges: Vec<(u32, u32)> = (0..u64::from(nodes) * u64::from(degree))
            .map(|_| {
                (0..scale).fold((0, 0), |(from, to), _| {
                    let (a, b) = match random.below(100) {
                        0..57 => (0, 0),
                        57..76 => (0, 1),
                        76..95 => (1, 0),
                        _ => (1, 1),
                    };
                    (from << 1 | a, to << 1 | b)
                })
            })
            .collect();
        // Shuffle the numbers, so that they do not correlate with a node's degree.
        let mut names: Vec<u32> = (0..nodes).collect();
        random.shuffle(&mut names);
        for (from, to) in &mut edges {
            (*from, *to) = (names[*from as usize], names[*to as usize]);
        }
        edges.sort_unstable_by_key(|&(from, to)| (to, from));
        let (mut begins, mut out) = (vec![0; nodes as usize + 1], vec![0; nodes as usize]);
        for &(from, to) in &edges {
            begins[to as usize + 1] += 1;
            out[from as usize] += 1;
        }
        for node in 0..nodes as usize {
            begins[node + 1] += begins[node];
        }
        Self { nodes, begins, from: edges.into_iter().map(|(from, _)| from).collect(), out }
    }

    fn edges_of(&self, node: u32) -> std::ops::Range<usize> {
        self.begins[node as usize] as usize..self.begins[node as usize + 1] as usize
    }

    /// The expected ranks after some iterations.
    fn ranks(&self, iterations: u32) -> Vec<f32> {
        let base = (1.0 - DAMPING) / self.nodes as f32;
        let mut ranks = vec![1.0 / self.nodes as f32; self.nodes as usize];
        for _ in 0..iterations {
            let given: Vec<f32> =
                ranks.iter().zip(&self.out).map(|(rank, &out)| rank / out.max(1) as f32).collect();
            let sum = |node| self.edges_of(node).map(|edge| given[self.from[edge] as usize]).sum::<f32>();
            ranks = (0..self.nodes).map(|node| base + DAMPING * sum(node)).collect();
        }
        ranks
    }
}

/// State shared by all threads.
struct Shared {
    graph: Graph,
    threads: u32,
    parts: RefCell<Vec<Option<Rc<ThreadData>>>>,
    /// Time of each step of each iteration, all threads together, in microseconds.
    steps: RefCell<Vec<f64>>,
}

impl Shared {
    fn nodes_of(&self, thread: u32) -> std::ops::Range<u32> {
        let edge = |n: u32| (u64::from(self.graph.nodes) * u64::from(n) / u64::from(self.threads)) as u32;
        edge(thread)..edge(thread + 1)
    }

    /// Address of a node's contribution to its neighbours in a round.
    fn place(&self, parts: &[Rc<ThreadData>], node: u32, round: u32) -> PhysAddr {
        let thread = (u64::from(node) * u64::from(self.threads) / u64::from(self.graph.nodes)) as u32;
        // Rounding may have picked the previous thread.
        let thread = if self.nodes_of(thread).contains(&node) { thread } else { thread + 1 };
        let first = self.nodes_of(thread).start;
        parts[thread as usize].ranks[(round & 1) as usize].at(4 * u64::from(node - first))
    }

    /// Allocates a thread's memory and stores its edges and initial ranks.
    async fn fill(&self, cpu: &Cpu, kernel: &dyn Kernel, thread: u32) -> Result<(), Error> {
        let nodes = self.nodes_of(thread);
        let edges =
            self.graph.begins[nodes.start as usize] as usize..self.graph.begins[nodes.end as usize] as usize;
        let bytes = 4 * u64::from(nodes.end - nodes.start);
        let take = |bytes: u64| Scattered::take(kernel, cpu, bytes.max(1), Policy::Local);
        let part = ThreadData { edges: take(4 * edges.len() as u64)?, ranks: [take(bytes)?, take(bytes)?] };
        for (n, chunk) in (0u64..).zip(self.graph.from[edges].chunks(LINE)) {
            let bytes: Vec<u8> = chunk.iter().flat_map(|from| from.to_le_bytes()).collect();
            // Bypass the caches: a real program touches far more memory after loading the graph.
            cpu.stream(part.edges.at(4 * LINE as u64 * n), &bytes);
            if n % 64 == 0 {
                cpu.sync().await;
            }
        }
        let rank = 1.0 / self.graph.nodes as f32;
        for node in nodes.clone() {
            let given = rank / self.graph.out[node as usize].max(1) as f32;
            cpu.store_u32(part.ranks[0].at(4 * u64::from(node - nodes.start)), given.to_bits());
        }
        self.parts.borrow_mut()[thread as usize] = Some(Rc::new(part));
        Ok(())
    }

    /// Computes a thread's part of an iteration.
    async fn iterate(&self, cpu: &Cpu, parts: &[Rc<ThreadData>], thread: u32, round: u32) {
        let nodes = self.nodes_of(thread);
        let (own, base) = (&parts[thread as usize], (1.0 - DAMPING) / self.graph.nodes as f32);
        let next = &own.ranks[((round + 1) & 1) as usize];
        let end_of = |node: u32| self.graph.begins[node as usize + 1] as usize;
        let give = |node: u32, sum: f32| {
            let given = (base + DAMPING * sum) / self.graph.out[node as usize].max(1) as f32;
            cpu.store_u32(next.at(4 * u64::from(node - nodes.start)), given.to_bits());
        };
        let first = self.graph.begins[nodes.start as usize] as usize;
        let end = self.graph.begins[nodes.end as usize] as usize;
        let (mut step, mut began) = (0, cpu.now());
        let (mut node, mut sum) = (nodes.start, 0.0);
        let mut places = Vec::with_capacity(TURN);
        let mut given = [0; 4 * TURN];
        for edge in (first..end).step_by(TURN) {
            let here = TURN.min(end - edge);
            let numbers = own.edges.at(4 * (edge - first) as u64);
            let length = 4 * here as u64;
            places.clear();
            cpu.sweep(Sweep { to: None, from: &[numbers], length, streaming: false }, 0, |bytes| {
                let from = bytes.as_chunks::<4>().0.iter().map(|from| u32::from_le_bytes(*from));
                places.extend(from.map(|from| self.place(parts, from, round)));
            });
            cpu.gather(&places, ADD, &mut given[..4 * here]);
            for (edge, given) in (edge..).zip(given[..4 * here].as_chunks::<4>().0) {
                while end_of(node) == edge {
                    give(node, sum);
                    (node, sum) = (node + 1, 0.0);
                }
                sum += f32::from_le_bytes(*given);
            }
            while (edge + here - first) * STEPS >= (step + 1) * (end - first) && step < STEPS {
                let took = cpu.now().since(began).as_ns_f64() / 1e3;
                self.steps.borrow_mut()[round as usize * STEPS + step] += took;
                (step, began) = (step + 1, cpu.now());
            }
            cpu.sync().await;
        }
        for node in node..nodes.end {
            give(node, sum);
            sum = 0.0;
        }
        cpu.sync().await;
    }
}

/// Runs `work` as a thread on each core and waits for all.
async fn on_all<F>(cpu: &Cpu, kernel: &Rc<dyn Kernel>, cpus: &[CpuId], work: F) -> Result<(), Error>
where
    F: Fn(Cpu, u32) -> Async<'static, Result<(), Error>> + Clone + 'static,
{
    let start = |(thread, &on): (u32, &CpuId)| {
        let work = work.clone();
        let params = TaskParams::named(format!("pr/{thread}")).on(on).of(cpu);
        kernel.run(params, async move |cpu| work(cpu, thread).await)
    };
    let threads: Vec<Completion<Result<(), Error>>> = (0..).zip(cpus).map(start).collect();
    for thread in threads {
        thread.wait().await?;
    }
    cpu.sync().await;
    Ok(())
}

impl Program for PageRank {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let bytes = (u128::from(self.degree) * 4 + 8) << self.scale;
        premises.holds("pr", "the graph of -g and -k", bytes)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Environment { kernel, cpus, seed, .. } = environment;
            let fail = |error| Failure::about("pr", error);
            let graph = Graph::make(self.scale, self.degree, seed);
            let parts = RefCell::new(vec![None; cpus.len()]);
            let steps = RefCell::new(vec![0.0; self.iterations as usize * STEPS]);
            let shared = Rc::new(Shared { graph, threads: cpus.len() as u32, parts, steps });
            let (of_fill, face) = (Rc::clone(&shared), Rc::clone(&kernel));
            let fill = move |cpu: Cpu, thread| -> Async<'static, Result<(), Error>> {
                let (shared, face) = (Rc::clone(&of_fill), Rc::clone(&face));
                Box::pin(async move { shared.fill(&cpu, &*face, thread).await })
            };
            on_all(&cpu, &kernel, &cpus, fill).await.map_err(fail)?;
            let parts: Vec<Rc<ThreadData>> = shared.parts.borrow().iter().flatten().cloned().collect();
            let parts = Rc::new(parts);
            let began = cpu.now();
            for round in 0..self.iterations {
                let (shared, parts) = (Rc::clone(&shared), Rc::clone(&parts));
                let iterate = move |cpu: Cpu, thread| -> Async<'static, Result<(), Error>> {
                    let (shared, parts) = (Rc::clone(&shared), Rc::clone(&parts));
                    Box::pin(async move {
                        shared.iterate(&cpu, &parts, thread, round).await;
                        Ok(())
                    })
                };
                on_all(&cpu, &kernel, &cpus, iterate).await.map_err(fail)?;
            }
            let took: Duration = cpu.now().since(began);
            let expected = shared.graph.ranks(self.iterations);
            let is_right = |node: u32| {
                let given = f32::from_bits(cpu.load_u32(shared.place(&parts, node, self.iterations)));
                let rank = given * shared.graph.out[node as usize].max(1) as f32;
                (rank - expected[node as usize]).abs() <= 1e-4 * expected[node as usize]
            };
            let right = (0..shared.graph.nodes).step_by(97).all(is_right);
            for part in parts.iter() {
                let arrays = [&part.edges, &part.ranks[0], &part.ranks[1]];
                arrays.iter().for_each(|array| array.free(&*kernel, &cpu));
            }
            if !right {
                return Err(Failure("the ranks are not those of the graph".into()));
            }
            let mut report = Report::default();
            let edges = shared.graph.from.len() as f64 * f64::from(self.iterations);
            report.add("nodes", "", f64::from(shared.graph.nodes));
            report.add("edges", "", shared.graph.from.len() as f64);
            report.add("trial time", "µs", took.as_ns_f64() / 1e3);
            report.add("rate", "edges/µs", edges / (took.as_ns_f64() / 1e3));
            report.samples = shared.steps.take().iter().map(|us| us / cpus.len() as f64).collect();
            Ok(report)
        })
    }
}
