//! A survey as JSON: every known value with where it was read.

use serde_json::{Map, Value, json};

use crate::fact::Origin;
use crate::findings::Finding;
use crate::model::Survey;

impl Survey {
    /// The machine, all of it.
    pub fn to_json(&self) -> Value {
        let facts = |known: Vec<(&'static str, String, Origin)>| {
            let each = known.into_iter().map(|(name, value, origin)| {
                (name.to_owned(), json!({ "value": typed(value), "read": self.shown(origin) }))
            });
            Value::Object(each.collect::<Map<_, _>>())
        };
        let mut functions = Map::new();
        for (address, function) in &self.functions {
            let mut entry = facts(function.known());
            entry["above"] = self.parent(*address).map(|parent| parent.to_string()).into();
            entry["at_node"] = self.node_of(*address).into();
            functions.insert(address.to_string(), entry);
        }
        macro_rules! all {
            ($map:ident) => {
                self.$map
                    .iter()
                    .map(|(key, value)| (key.to_string(), facts(value.known())))
                    .collect::<Map<_, _>>()
            };
        }
        let caches = self.caches.iter().map(|((level, kind, cpus), cache)| {
            let mut entry = facts(cache.known());
            entry["level"] = (*level).into();
            entry["kind"] = (*kind).into();
            entry["cpus"] = cpus.to_string().into();
            entry
        });
        json!({
            "sources": self.sources.iter().map(|source| json!({ "name": source.name, "format": source.format })).collect::<Vec<_>>(),
            "machine": facts(self.machine.known()),
            "packages": self.packages.iter().map(|(number, name)| (number.to_string(), name.as_str().into())).collect::<Map<_, _>>(),
            "nodes": all!(nodes),
            "distances": self.distances.iter().map(|((a, b), far)| json!([a, b, far])).collect::<Vec<_>>(),
            "cpus": all!(cpus),
            "caches": caches.collect::<Vec<_>>(),
            "functions": functions,
            "interfaces": all!(interfaces),
            "devices": all!(devices),
            "irqs": all!(irqs),
            "processes": all!(processes),
            "threads": all!(threads),
            "paths": self.paths.iter().map(|((a, b), path)| json!([a, b, path])).collect::<Vec<_>>(),
            "fabric": self.fabric.iter().map(|((a, b), join)| json!([a, b, join])).collect::<Vec<_>>(),
            "doubts": self.doubts.iter().map(|doubt| json!({ "about": doubt.about, "message": doubt.message })).collect::<Vec<_>>(),
        })
    }
}

/// Numbers and truth values as such.
fn typed(value: String) -> Value {
    match value.as_str() {
        "true" => true.into(),
        "false" => false.into(),
        // What begins with a zero is a number of a vendor or a device.
        text if text.len() > 1 && text.starts_with('0') => value.into(),
        text => text.parse::<u64>().map(Value::from).unwrap_or_else(|_| value.clone().into()),
    }
}

impl Finding {
    /// The finding as a record.
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "functions": self.functions.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "title": self.title,
            "evidence": self.evidence,
            "cost_share": self.cost.share,
            "cost": self.cost.text,
            "cost_source": self.cost.source,
            "cure": self.cure,
        })
    }
}
