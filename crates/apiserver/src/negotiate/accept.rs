//! Reading `Accept`.

use names::Names;
use rest::ApiError;

/// What the client will get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub form: Form,
    pub transform: Transform,
}

/// The encoding of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    Yaml,
    Protobuf,
}

/// What of the objects is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    Whole,
    /// Rows for people; the flag says the older version of the table's kind.
    Table {
        beta: bool,
    },
    /// Metadata alone; the flag as above.
    Partial {
        beta: bool,
    },
    PartialList {
        beta: bool,
    },
}

/// What can be had at a place.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// Partial metadata.
    pub transforms: bool,
    /// Tables, which only what can be read has.
    pub tables: bool,
    /// A watch.
    pub stream: bool,
    /// Protobuf, which only kinds with numbered fields have.
    pub protobuf: bool,
}

impl Output {
    pub const PROTOBUF: Output = Output { form: Form::Protobuf, transform: Transform::Whole };
    pub const JSON: Output = Output { form: Form::Json, transform: Transform::Whole };

    /// The first acceptable clause wins, by weight and then by order.
    pub fn parse(accept: Option<&str>, names: &Names, offer: Offer) -> Result<Self, ApiError> {
        let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else { return Ok(Self::JSON) };
        let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        let mut known = false;
        let protobuf = names.protobuf_media_type();
        for clause in &clauses {
            let Some(form) = clause.form(&protobuf) else { continue };
            known = true;
            // known, though not to be had of kinds that were made while the server ran
            if form == Form::Protobuf && !offer.protobuf {
                continue;
            }
            if let Some(transform) = clause.transform(names, offer, form) {
                return Ok(Output { form, transform });
            }
        }
        let mut available = vec!["application/json", "application/yaml"];
        if offer.protobuf || known {
            available.push(&protobuf);
        }
        if known {
            return Err(ApiError::not_acceptable(&available));
        }
        let protobuf_stream = format!("{protobuf};stream=watch");
        if offer.stream {
            available.push("application/json;stream=watch");
            if offer.protobuf {
                available.push(&protobuf_stream);
            }
        }
        Err(ApiError::nothing_acceptable(&available))
    }
}

/// In which form a client prefers discovery in one document, if it does.
pub(crate) fn prefers_whole(accept: Option<&str>, names: &Names) -> Option<Form> {
    let mut clauses: Vec<Clause<'_>> = accept?.split(',').map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let (protobuf, group) = (names.protobuf_media_type(), names.group("apidiscovery"));
    let wanted = |clause: &Clause<'_>| {
        let asked = ["as", "g", "v"].map(|key| clause.get(key));
        let form = clause.form(&protobuf)?;
        match asked {
            ["APIGroupDiscoveryList", of, "v2beta1"] if of == group => Some(Some(form)),
            ["", "", ""] => Some(None),
            _ => None,
        }
    };
    clauses.iter().find_map(wanted).flatten()
}

struct Clause<'a> {
    media: &'a str,
    weight: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let weight = parameters.iter().find(|(key, _)| *key == "q").and_then(|(_, q)| q.parse().ok());
        Clause { media, weight: weight.unwrap_or(1.0), parameters }
    }

    fn form(&self, protobuf: &str) -> Option<Form> {
        match self.media {
            media if media == protobuf => Some(Form::Protobuf),
            "application/json" | "*/*" => Some(Form::Json),
            // nothing streams in this form
            "application/yaml" if self.get("stream").is_empty() => Some(Form::Yaml),
            _ => None,
        }
    }

    fn get(&self, key: &str) -> &'a str {
        self.parameters.iter().find(|(k, _)| *k == key).map_or("", |(_, value)| value)
    }

    fn transform(&self, names: &Names, offer: Offer, form: Form) -> Option<Transform> {
        let wanted = self.get("as");
        if wanted.is_empty() {
            return Some(Transform::Whole);
        }
        let version = self.get("v");
        if !offer.transforms || self.get("g") != names.meta_group() || !matches!(version, "v1" | "v1beta1") {
            return None;
        }
        let beta = version == "v1beta1";
        match wanted {
            // rows have no protobuf form
            "Table" if form == Form::Protobuf || !offer.tables => None,
            "Table" => Some(Transform::Table { beta }),
            "PartialObjectMetadata" => Some(Transform::Partial { beta }),
            "PartialObjectMetadataList" => Some(Transform::PartialList { beta }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(accept: &str) -> Result<Output, u16> {
        Output::parse(
            Some(accept),
            &Names::default(),
            Offer { transforms: true, tables: true, stream: true, protobuf: true },
        )
        .map_err(|error| error.code)
    }

    #[test]
    fn the_best_clause_wins() {
        let whole = |form| Ok(Output { form, transform: Transform::Whole });
        assert_eq!(parse("*/*"), whole(Form::Json));
        assert_eq!(parse("application/yaml"), whole(Form::Yaml));
        assert_eq!(parse("application/json;q=0.1, application/yaml"), whole(Form::Yaml));
        assert_eq!(parse("application/vnd.kubernetes.protobuf,application/json"), whole(Form::Protobuf));
        assert_eq!(parse("text/html"), Err(406));
        assert_eq!(parse("application/json;as=Table;v=v2;g=meta.k8s.io"), Err(406));
        assert_eq!(
            parse("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            Ok(Output { form: Form::Json, transform: Transform::Table { beta: false } })
        );
    }
}
