//! What the name of a directory of measured results says, and which machine it means.

use crate::diagnostic::Diagnostics;
use crate::doc::Doc;
use crate::host::Machine;
use crate::library::Library;
use crate::part::Part;
use crate::scenario::{IommuMode, Sockets};
use crate::suggest;

/// Under what circumstances the results of a directory were measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The card, such as `nfp6000`.
    pub card: String,
    /// The CPU, such as `E5-2630v4`.
    pub cpu: String,
    /// The box, such as `dell-t430`.
    pub system: String,
    /// The sockets that took part.
    pub sockets: Sockets,
    /// Whether and how the IOMMU translated.
    pub iommu: IommuMode,
}

impl Placement {
    /// What `name` says, the last part of the directory's path:
    /// `CARD-CLOCK_GENERATION-Xeon-CPU-BOX[-sX-sY-sZ][-iommu[-nosp]]`, with
    /// `_` or `-` between CPU and box.
    ///
    /// # Errors
    /// If the name is not of this form.
    pub fn of_directory(name: &str) -> Result<Self, Diagnostics> {
        let wrong = |what: &str| {
            Diagnostics::about(
                name,
                format!("the directory's name does not say {what}"),
                Some("such as `nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s1-s1-iommu-nosp`; or name the machine".into()),
            )
        };
        let (card, rest) = name.split_once('_').ok_or_else(|| wrong("which card was used"))?;
        let (_, rest) = rest.split_once("Xeon-").ok_or_else(|| wrong("which CPU the machine had"))?;
        let (rest, iommu) = if let Some(rest) = rest.strip_suffix("-iommu-nosp") {
            (rest, IommuMode::Pages4k)
        } else if let Some(rest) = rest.strip_suffix("-iommu") {
            (rest, IommuMode::Superpages)
        } else {
            (rest, IommuMode::Off)
        };
        let (rest, sockets) = split_sockets(rest);
        let end = end_of_cpu(rest).ok_or_else(|| wrong("which CPU the machine had"))?;
        let (cpu, system) = rest.split_at(end);
        Ok(Self {
            card: card.split('-').next().unwrap_or(card).into(),
            cpu: cpu.into(),
            system: system.trim_start_matches(['-', '_']).into(),
            sockets: sockets.unwrap_or(Sockets { device: 0, memory: 0, warming: 0 }),
            iommu,
        })
    }
}

/// Splits `-sX-sY-sZ` off the end.
fn split_sockets(text: &str) -> (&str, Option<Sockets>) {
    let socket = |text: &str| text.strip_prefix('s')?.parse::<u32>().ok();
    let mut parts = text.rsplitn(4, '-');
    let last: Vec<&str> = parts.by_ref().take(3).collect();
    match (last.as_slice(), parts.next()) {
        (&[z, y, x], Some(rest)) => match (socket(x), socket(y), socket(z)) {
            (Some(device), Some(memory), Some(warming)) => (rest, Some(Sockets { device, memory, warming })),
            _ => (text, None),
        },
        _ => (text, None),
    }
}

/// Where a name such as `E5-2630v4` at the start of `text` ends.
fn end_of_cpu(text: &str) -> Option<usize> {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let family = text.strip_prefix('E').map(|_| 1 + digits(1)).filter(|&end| end > 1)?;
    let start = family + text[family..].strip_prefix('-').map(|_| 1)?;
    let end = start + digits(start);
    if end == start {
        return None;
    }
    let version = text[end..].strip_prefix('v').map_or(0, |_| digits(end + 1));
    Some(if version > 0 { end + 1 + version } else { end })
}

/// The machine and card that a directory of measured results was taken with.
#[derive(Debug, Clone)]
pub struct MeasuredRun {
    /// What the directory's name says.
    pub placement: Placement,
    /// The machine's file.
    pub machine: Doc<Machine>,
    /// The card's file.
    pub card: Doc<Part>,
}

impl MeasuredRun {
    /// Finds machine and card for the directory called `name`; `machine` overrides what the name says.
    ///
    /// # Errors
    /// If the name is not of the known form, or no file is about such a machine or card.
    pub fn find(library: &Library, name: &str, machine: Option<&str>) -> Result<Self, Diagnostics> {
        let placement = Placement::of_directory(name)?;
        let machine = match machine {
            Some(machine) => Doc::load(library, machine)?,
            None => find_machine(library, &placement)?,
        };
        check_placement(name, &placement, &machine.read()?)?;
        Ok(Self { card: find_card(library, &placement)?, machine, placement })
    }
}

/// Whether the machine has the sockets and the IOMMU that the name speaks of.
fn check_placement(name: &str, placement: &Placement, machine: &Machine) -> Result<(), Diagnostics> {
    let Sockets { device, memory, warming } = placement.sockets;
    let sockets = machine.host.sockets.value.get();
    let most = device.max(memory).max(warming);
    if most >= sockets {
        let help = format!("its sockets are numbered 0 to {}; name another machine", sockets - 1);
        return Err(Diagnostics::about(name, format!("{} has no socket {most}", machine.name), Some(help)));
    }
    if placement.iommu != IommuMode::Off && machine.host.iommu.is_none() {
        let help = Some("name another machine".into());
        return Err(Diagnostics::about(name, format!("{} has no IOMMU", machine.name), help));
    }
    Ok(())
}

fn find_machine(library: &Library, placement: &Placement) -> Result<Doc<Machine>, Diagnostics> {
    let mut of_cpu = None;
    for name in library.names("machines") {
        let doc = Doc::<Machine>::load(library, &name)?;
        let Some(known) = doc.read()?.measured_as else { continue };
        if !known.cpu.eq_ignore_ascii_case(&placement.cpu) {
            continue;
        }
        if known.system.as_deref().is_some_and(|system| system.eq_ignore_ascii_case(&placement.system)) {
            return Ok(doc);
        }
        // Another box with the same CPU is the nearest relative.
        of_cpu.get_or_insert(doc);
    }
    of_cpu.ok_or_else(|| {
        let names = library.names("machines");
        Diagnostics::about(
            &placement.cpu,
            format!("no machine file is about `{}` with an `{}`", placement.system, placement.cpu),
            Some(format!("name one with --machine: {}", suggest::list(names.iter().map(String::as_str)))),
        )
    })
}

fn find_card(library: &Library, placement: &Placement) -> Result<Doc<Part>, Diagnostics> {
    for name in library.names("machines/parts") {
        let doc = Doc::<Part>::load(library, &name)?;
        if doc.read()?.measured_as.is_some_and(|known| known.eq_ignore_ascii_case(&placement.card)) {
            return Ok(doc);
        }
    }
    Err(Diagnostics::about(&placement.card, format!("no part file is about a `{}`", placement.card), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_directories_are_understood() {
        let place = |name| {
            let p = Placement::of_directory(name).unwrap();
            let s = p.sockets;
            format!("{} {} {} {}{}{} {}", p.card, p.cpu, p.system, s.device, s.memory, s.warming, p.iommu)
        };
        assert_eq!(
            place("nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s1-s0-iommu-nosp"),
            "nfp6000 E5-2630v4 dell-t430 010 4k"
        );
        assert_eq!(place("nfp6000-1.2GHz_snb-Xeon-E5-2630_dell-t620"), "nfp6000 E5-2630 dell-t620 000 off");
        assert_eq!(
            place("nfp6000-1.2GHz_hsw-Xeon-E5-2620v3_dell-t630-iommu"),
            "nfp6000 E5-2620v3 dell-t630 000 superpages"
        );
        assert_eq!(
            place("nfp6000-1.2GHz_ib-Xeon-E5-2620v2_dell-t620-s0-s1-s1"),
            "nfp6000 E5-2620v2 dell-t620 011 off"
        );
        assert!(Placement::of_directory("results").is_err());
        assert!(Placement::of_directory("nfp_x-Xeon-E-box").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_name_panics(name in ".{0,60}") {
            let _ = Placement::of_directory(&name);
        }

        #[test]
        fn no_name_of_the_form_panics(name in "n_x-Xeon-[E0-9vé_s-]{0,20}(-iommu)?(-nosp)?") {
            let _ = Placement::of_directory(&name);
        }
    }
}
