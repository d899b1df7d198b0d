//! `iperf3 -J`: the original's fields.

use serde_json::{Value, json};
use units::{Duration, Time};

use super::stream::{INTERVALS, StreamExtent, StreamTally};
use super::three::{Iperf3, TestResults};

/// First descriptor of a stream in the original.
const SOCKET: usize = 5;

/// Seconds and rate of `bytes` in a part of a test.
fn part(from: Duration, to: Duration, bytes: u64) -> Value {
    let seconds = to.as_s_f64() - from.as_s_f64();
    let rate = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
    json!({
        "start": from.as_s_f64(), "end": to.as_s_f64(), "seconds": seconds, "bytes": bytes, "bits_per_second": rate,
    })
}

/// Adds fields.
fn with(mut value: Value, more: Value) -> Value {
    if let (Value::Object(own), Value::Object(more)) = (&mut value, more) {
        own.extend(more);
    }
    value
}

fn datagrams(tallies: &[StreamTally]) -> Value {
    let sum = |of: fn(&StreamTally) -> u64| tallies.iter().map(of).sum::<u64>();
    let (lost, received) = (sum(|tally| tally.lost), sum(|tally| tally.datagrams));
    let jitter =
        tallies.iter().map(|tally| tally.jitter.as_s_f64() * 1e3).sum::<f64>() / tallies.len().max(1) as f64;
    let packets = lost + received;
    json!({
        "jitter_ms": jitter, "lost_packets": lost, "packets": packets,
        "lost_percent": 100.0 * lost as f64 / (packets as f64).max(1.0),
    })
}

/// One side of a stream, or the sum of several.
fn side(tallies: &[StreamTally], took: Duration, sender: bool, udp: bool) -> Value {
    let bytes = tallies.iter().map(|tally| tally.bytes).sum();
    let mut value = with(part(Duration::ZERO, took, bytes), json!({ "sender": sender }));
    if udp {
        value = with(value, datagrams(tallies));
    } else if sender {
        let again: u64 = tallies.iter().map(|tally| tally.again).sum();
        value = with(value, json!({ "retransmits": again }));
    }
    value
}

fn took(tallies: &[StreamTally]) -> Duration {
    tallies.iter().map(|tally| tally.took).max().unwrap_or_default()
}

fn start(of: &Iperf3, results: &TestResults, now: Time) -> Value {
    let (settings, order) = (of.settings(), of.order());
    let host = of.to().ip().to_string();
    let connected = |(n, (local, remote)): (usize, &(u16, u16))| json!({ "socket": SOCKET + n, "local_port": local, "remote_host": host, "remote_port": remote });
    let (seconds, bytes, blocks) = match settings.extent {
        StreamExtent::Time(time) => (time.as_s_f64(), 0, 0),
        StreamExtent::Bytes(bytes) => (0.0, bytes, 0),
        StreamExtent::Blocks(blocks) => (0.0, 0, blocks),
    };
    let began = now.since(Time::ZERO).as_s_f64() - results.took.as_s_f64();
    json!({
        "connected": results.ports.iter().enumerate().map(connected).collect::<Vec<_>>(),
        "version": "iperf 3 (nearfar)",
        "system_info": "simulated",
        "timestamp": { "timesecs": began },
        "connecting_to": { "host": host, "port": of.to().port() },
        "target_bitrate": settings.rate,
        "sock_bufsize": settings.window.unwrap_or(0),
        "test_start": {
            "protocol": if settings.udp { "UDP" } else { "TCP" },
            "num_streams": order.parallel, "blksize": settings.length, "omit": settings.omit.as_s_f64(),
            "duration": seconds, "bytes": bytes, "blocks": blocks, "reverse": u8::from(order.reverse),
            "tos": 0, "target_bitrate": settings.rate, "bidir": 0,
        },
    })
}

fn intervals(of: &Iperf3, here: &[StreamTally]) -> Vec<Value> {
    let (settings, sender, all) = (of.settings(), !of.order().reverse, took(here));
    let Some(interval) = settings.interval else { return Vec::new() };
    let count = all.as_ps().div_ceil(interval.as_ps().max(1)).min(INTERVALS);
    let one = |n: u64| {
        let (from, to) = (interval * n, (interval * (n + 1)).min(all));
        let bytes = |tally: &StreamTally| tally.intervals.get(n as usize).copied().unwrap_or(0);
        let stream = |(socket, tally): (usize, &StreamTally)| {
            let own = json!({ "socket": SOCKET + socket, "omitted": false, "sender": sender });
            with(part(from, to, bytes(tally)), own)
        };
        let sum = part(from, to, here.iter().map(bytes).sum());
        json!({
            "streams": here.iter().enumerate().map(stream).collect::<Vec<_>>(),
            "sum": with(sum, json!({ "omitted": false, "sender": sender })),
        })
    };
    (0..count).map(one).collect()
}

fn end(of: &Iperf3, results: &TestResults) -> Value {
    let (udp, sender) = (of.settings().udp, !of.order().reverse);
    let (sent, received) = (&results.sent[..], &results.received[..]);
    let streams = sent.iter().zip(received).enumerate().map(|(n, (out, back))| {
        let socket = json!({ "socket": SOCKET + n });
        if udp {
            let one = side(std::slice::from_ref(back), out.took, sender, true);
            let late = json!({ "out_of_order": back.late });
            return json!({ "udp": with(with(one, late), socket) });
        }
        let rtt = out.round_trip.as_ns_f64() / 1e3;
        let tcp = json!({ "max_snd_cwnd": out.window, "mean_rtt": rtt as u64, "sender": sender });
        json!({
            "sender": with(with(side(std::slice::from_ref(out), out.took, true, false), tcp), socket.clone()),
            "receiver": with(
                with(side(std::slice::from_ref(back), back.took, false, false), json!({ "sender": sender })),
                socket,
            ),
        })
    });
    let mut end = json!({
        "streams": streams.collect::<Vec<_>>(),
        "sum_sent": with(side(sent, took(sent), true, udp), json!({ "sender": sender })),
        "sum_received": with(side(received, took(received), false, udp), json!({ "sender": sender })),
        "cpu_utilization_percent": {
            "host_total": results.local_cpu.0, "host_user": results.local_cpu.1,
            "host_system": results.local_cpu.0 - results.local_cpu.1,
            "remote_total": results.remote_cpu.0, "remote_user": results.remote_cpu.1,
            "remote_system": results.remote_cpu.0 - results.remote_cpu.1,
        },
    });
    if udp {
        end["sum"] = with(side(received, took(sent), sender, true), json!({ "sender": sender }));
    } else {
        end["sender_tcp_congestion"] = "cubic".into();
        end["receiver_tcp_congestion"] = "cubic".into();
    }
    end
}

/// The whole text.
pub fn text(of: &Iperf3, results: &TestResults, now: Time) -> String {
    let here = if of.order().reverse { &results.received } else { &results.sent };
    let all = json!({
        "start": start(of, results, now),
        "intervals": intervals(of, here),
        "end": end(of, results),
    });
    format!("{all:#}")
}
