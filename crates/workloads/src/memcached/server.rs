//! memcached: a key-value store whose items are kept in wire format.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, Policy};

use super::line::Wire;
use super::{LONGEST_KEY, PORT};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;

/// Cycles to parse a command, hash its key and find the item (assumed: about 1 us of memcached's own code).
const COMMAND: u64 = 2_000;

/// Options without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-u, --user USER", "programs have no users"),
    Unmodelled::harmless("-d, --daemon", "a server is a task like any other, and prints nothing"),
    Unmodelled::harmless("-v, --verbose", "a server prints nothing"),
    Unmodelled::harmless("-P, --pidfile FILE", "there is no file of processes"),
    Unmodelled::harmless("-r, --enable-coredumps", "there are no core dumps"),
    Unmodelled::harmless("-k, --lock-memory", "memory is not paged out"),
    Unmodelled::harmless("-c, --conn-limit NUMBER", "as many connections as clients open are served"),
    Unmodelled::harmless("-b, --listen-backlog NUMBER", "1024 connections may wait"),
    Unmodelled::harmless("-R, --max-reqs-per-event NUMBER", "a connection has one request under way"),
    Unmodelled::harmless("-f, --slab-growth-factor FACTOR", "items have pages of their own"),
    Unmodelled::harmless("-n, --slab-min-size BYTES", "items have pages of their own"),
    Unmodelled::harmless("-L, --enable-largepages", "items have pages of their own"),
    Unmodelled::harmless("-C, --disable-cas", "items have no unique numbers for clients"),
    Unmodelled::harmless(
        "-o, --extended OPTIONS",
        "they tune what is not modelled: slabs, hash table, threads",
    ),
    Unmodelled::refused("-B, --protocol NAME", "the text protocol is what there is"),
    Unmodelled::refused("-M, --disable-evictions", "the oldest items are evicted; give more with -m"),
    Unmodelled::refused("-s, --unix-socket FILE", "clients come by TCP: -l and -p"),
    Unmodelled::refused("-S, --enable-sasl", "everyone may use the store"),
];

/// A key-value store in memory, up to a limit.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "memcached", disable_help_flag = true)]
pub struct Memcached {
    /// Address to listen at; all by default.
    #[arg(short = 'l', long = "listen", default_value = "0.0.0.0")]
    address: Ipv4Addr,
    /// TCP port to listen at.
    #[arg(short = 'p', long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// UDP port to listen at: 0, as clients use TCP.
    #[arg(short = 'U', long = "udp-port", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=0))]
    udp: u16,
    /// Number of threads. A connection belongs to one thread; threads get their own cores while there are enough.
    #[arg(short = 't', long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Memory limit for items in megabytes; the oldest are evicted.
    #[arg(short = 'm', long = "memory-limit", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    megabytes: u32,
    /// Maximum bytes per value.
    #[arg(short = 'I', long = "max-item-size", default_value = "1m", value_parser = largest)]
    largest: u64,
}

/// Most bytes per value, as the original limits them.
fn largest(text: &str) -> Result<u64, String> {
    let bytes = crate::options::size(text)?;
    if (1024..=1 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("{bytes} is not in 1024..={}", 1 << 30))
    }
}

/// An item in the format of a GET response: a line, the value, the end marker.
struct Item {
    kernel: Rc<dyn Kernel>,
    pages: Pages,
    length: u32,
    /// Identifies the item in the store's order.
    number: u64,
}

/// The stored items.
#[derive(Default)]
struct Store {
    items: RefCell<BTreeMap<String, Rc<Item>>>,
    /// Keys and the item numbers that they had, the oldest first.
    order: RefCell<VecDeque<(String, u64)>>,
    /// Removed items whose pages are freed by the next command.
    gone: RefCell<Vec<Rc<Item>>>,
    bytes: Cell<u64>,
    next: Cell<u64>,
}

impl Store {
    /// Stores an item, replacing the one with the same key and evicting the oldest as needed.
    fn put(&self, cpu: &Cpu, key: String, item: Item, most: u64) {
        let number = item.number;
        self.bytes.set(self.bytes.get() + item.pages.len());
        let old = self.items.borrow_mut().insert(key.clone(), Rc::new(item));
        self.order.borrow_mut().push_back((key, number));
        self.let_go(old);
        while self.bytes.get() > most {
            let Some((key, number)) = self.order.borrow_mut().pop_front() else { break };
            let is_it = self.items.borrow().get(&key).is_some_and(|item| item.number == number);
            if is_it {
                let old = self.items.borrow_mut().remove(&key);
                self.let_go(old);
            }
        }
        self.free(cpu);
    }

    fn let_go(&self, old: Option<Rc<Item>>) {
        if let Some(old) = old {
            self.bytes.set(self.bytes.get() - old.pages.len());
            self.gone.borrow_mut().push(old);
        }
    }

    /// Frees the pages of removed items that are not being sent.
    fn free(&self, cpu: &Cpu) {
        self.gone.borrow_mut().retain(|item| {
            let is_sent = Rc::strong_count(item) > 1;
            if !is_sent {
                item.kernel.free_pages(cpu, item.pages);
            }
            is_sent
        });
    }
}

impl Memcached {
    /// Serves a connection until it closes.
    async fn serve(
        &self,
        cpu: &Cpu,
        wire: &mut Wire,
        store: &Store,
        kernel: &Rc<dyn Kernel>,
    ) -> Result<(), Error> {
        while let Some(line) = wire.line(cpu).await? {
            cpu.work(COMMAND);
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[..] {
                ["get", key] => {
                    let item = store.items.borrow().get(key).cloned();
                    match item {
                        Some(item) => wire.send(cpu, item.pages.start, item.length).await?,
                        None => wire.say(cpu, "END\r\n").await?,
                    }
                }
                ["set", key, flags, _, length] => {
                    let length =
                        length.parse().ok().filter(|&length: &u32| u64::from(length) <= self.largest);
                    let (Some(length), true) = (length, key.len() <= LONGEST_KEY as usize) else {
                        wire.say(cpu, "SERVER_ERROR object too large for cache\r\n").await?;
                        return Ok(());
                    };
                    let head = format!("VALUE {key} {flags} {length}\r\n");
                    let tail = b"\r\nEND\r\n";
                    let bytes = head.len() as u32 + length + tail.len() as u32;
                    let pages = kernel.alloc_pages(cpu, Pages::order_for(bytes.into()), Policy::Task)?;
                    cpu.store(pages.start, head.as_bytes());
                    let value = pages.start + head.len() as u64;
                    // The value is followed by a line terminator.
                    if !wire.data(cpu, value, length + 2).await? {
                        kernel.free_pages(cpu, pages);
                        return Ok(());
                    }
                    cpu.store(value + u64::from(length), tail);
                    let number = store.next.get();
                    store.next.set(number + 1);
                    let item = Item { kernel: Rc::clone(kernel), pages, length: bytes, number };
                    store.put(cpu, key.to_owned(), item, u64::from(self.megabytes) << 20);
                    wire.say(cpu, "STORED\r\n").await?;
                }
                ["quit"] => return Ok(()),
                _ => wire.say(cpu, "ERROR\r\n").await?,
            }
            cpu.sync().await;
        }
        Ok(())
    }
}

impl Program for Memcached {
    fn serves(&self) -> bool {
        true
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        premises.holds("memcached", "-m", u128::from(self.megabytes) << 20)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Environment { kernel, cpus, .. } = environment;
            let at = SocketAddrV4::new(self.address, self.port);
            let listener = kernel.network().listen(&cpu, at, 1024);
            let listener =
                listener.map_err(|error| Failure::about(format!("memcached, port {}", self.port), error))?;
            let store = Rc::new(Store::default());
            for number in 0.. {
                let stream = listener.accept(&cpu).await?;
                stream.set_no_delay(true);
                let thread = number % usize::from(self.threads);
                let on = cpus[thread % cpus.len()];
                let (me, store, face) = (Rc::clone(&self), Rc::clone(&store), Rc::clone(&kernel));
                let serve = move |cpu: Cpu| -> Async<'static, ()> {
                    Box::pin(async move {
                        let Ok(mut wire) = Wire::new(&cpu, &face, stream) else { return };
                        // A client that disconnects reports the reason itself.
                        let _ = me.serve(&cpu, &mut wire, &store, &face).await;
                        wire.close(&cpu);
                    })
                };
                kernel.spawn(TaskParams::named("mc-worker").on(on).of(&cpu), Box::new(serve));
            }
            Ok(Report::default())
        })
    }
}
