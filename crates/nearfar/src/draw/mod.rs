//! A scenario as a picture: hosts, sockets, slots, devices, switches, and what joins them, drawn as wide as they carry.
//!
//! `scene` says what is there, `layout` where it goes, `svg` writes it.

mod layout;
mod scene;
mod svg;

use crate::experiment::Experiment;

/// The scenario as SVG, legible at a width of 420 pixels.
pub fn picture(experiment: &Experiment) -> String {
    svg::write(&layout::lay_out(&scene::of(experiment)))
}

#[cfg(test)]
mod tests {
    use machine::Library;

    use super::*;

    /// The texts of a picture: place, estimated width, and what they say.
    fn texts(document: &roxmltree::Document<'_>) -> Vec<(f64, f64, f64, String)> {
        let number = |node: &roxmltree::Node<'_, '_>, key| node.attribute(key).unwrap().parse().unwrap();
        let all = document.descendants().filter(|node| node.has_tag_name("text"));
        all.map(|node| {
            let inner = node.descendants().filter(roxmltree::Node::is_text);
            let text: String = inner.filter_map(|node| node.text()).collect();
            // About the average of a wide font.
            (number(&node, "x"), number(&node, "y"), text.chars().count() as f64 * 6.0, text)
        })
        .collect()
    }

    #[test]
    fn every_shipped_scenario_is_drawn_with_all_it_has() {
        let library = Library::built_in();
        let names = library.names("scenarios");
        assert!(names.len() > 40);
        for name in names {
            let experiment = Experiment::load(&library, &name, "set", &[]).unwrap();
            let picture = picture(&experiment);
            let document =
                roxmltree::Document::parse(&picture).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            let texts = texts(&document);
            let has = |wanted: &str| {
                texts.iter().any(|(.., text)| text.split([' ', ',']).any(|word| word == wanted))
            };
            match &experiment {
                Experiment::Bench(setup) => assert!(has(&setup.card.name), "{name}: {}", setup.card.name),
                Experiment::Computers(setup) => {
                    for host in &setup.hosts {
                        assert!(has(&host.name) && has(&host.machine.name), "{name}: {}", host.name);
                        for device in &host.devices {
                            let own = device.name.as_deref().unwrap_or(device.kind.model().name());
                            let foreign = format!("{}:{own}", host.name);
                            assert!(has(own) || has(&foreign), "{name}: {own}");
                        }
                        assert!(host.switches.iter().all(|switch| has(&switch.name)), "{name}");
                    }
                    assert!(
                        setup.network.switches.iter().all(|(switch, _)| has(&switch.name.value)),
                        "{name}"
                    );
                }
            }
            for (n, (x, y, width, text)) in texts.iter().enumerate() {
                assert!(x + width <= 420.0, "{name}: `{text}` goes over the edge");
                for (ox, oy, other, said) in &texts[n + 1..] {
                    let apart = (y - oy).abs() >= 12.0 || x + width <= *ox || ox + other <= *x;
                    assert!(apart, "{name}: `{text}` and `{said}` overlap");
                }
            }
        }
    }
}
