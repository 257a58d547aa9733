//! Negotiation by the `Accept` header.

use names::Names;
use rest::ApiError;

/// The negotiated output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub form: Form,
    pub transform: Transform,
}

/// The encoding of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    Yaml,
    Protobuf,
}

/// The representation of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    Whole,
    /// A table; the flag selects the beta version of its kind.
    Table {
        beta: bool,
    },
    /// Metadata only; the flag as above.
    Partial {
        beta: bool,
    },
    PartialList {
        beta: bool,
    },
}

/// The representations that are available.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// Partial metadata.
    pub transforms: bool,
    /// Tables, which only readable resources have.
    pub tables: bool,
    /// A watch.
    pub stream: bool,
    /// Whole objects in protobuf, which only kinds with numbered fields have.
    pub protobuf: bool,
    /// Whether unknown media types are refused before negotiation; custom resources do not do so.
    pub route: bool,
}

impl Output {
    pub const PROTOBUF: Output = Output { form: Form::Protobuf, transform: Transform::Whole };
    pub const JSON: Output = Output { form: Form::Json, transform: Transform::Whole };

    /// The first acceptable clause wins, by weight and then by order; wildcards come last.
    pub fn parse(accept: Option<&str>, names: &Names, offer: Offer) -> Result<Self, ApiError> {
        let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else { return Ok(Self::JSON) };
        let clauses = Clause::sorted(accept);
        let protobuf = names.protobuf_media_type();
        let mut available = vec!["application/json", "application/yaml", &*protobuf];
        let is_available = |clause: &Clause<'_>| clause.media == "*/*" || available.contains(&clause.media);
        if offer.route && !clauses.iter().any(is_available) {
            let protobuf_stream = format!("{protobuf};stream=watch");
            if offer.stream {
                available.extend(["application/json;stream=watch", &protobuf_stream]);
            }
            return Err(ApiError::nothing_acceptable(&available));
        }
        let output = clauses.iter().find_map(|clause| {
            let mut forms = [Form::Json, Form::Yaml, Form::Protobuf].into_iter();
            forms.find_map(|form| {
                let matches = clause.matches(available[form as usize]);
                let transform = matches.then(|| clause.transform(names, offer, form))??;
                Some(Output { form, transform })
            })
        });
        output.ok_or_else(|| ApiError::not_acceptable(&available))
    }
}

/// The encoding in which a client prefers aggregated discovery, if it does.
pub(crate) fn prefers_aggregated(accept: Option<&str>, names: &Names) -> Option<Form> {
    let clauses = Clause::sorted(accept?);
    let (protobuf, group) = (names.protobuf_media_type(), names.group("apidiscovery"));
    let encoding = |clause: &Clause<'_>| {
        let parameters = ["as", "g", "v"].map(|key| clause.get(key));
        let form = clause.form(&protobuf)?;
        match parameters {
            ["APIGroupDiscoveryList", of, "v2beta1"] if of == group => Some(Some(form)),
            ["", "", ""] => Some(None),
            _ => None,
        }
    };
    clauses.iter().find_map(encoding).flatten()
}

/// Whether a client accepts one of the media types, or any.
pub(crate) fn accepts_any(accept: Option<&str>, available: &[&str]) -> bool {
    let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else { return true };
    let fits = |part: &str, of: &str| part == "*" || part == of;
    let matches = |clause: &Clause<'_>, media: &str| {
        let ((kind, part), (of, subtype)) = (halves(clause.media), halves(media));
        fits(kind, of) && fits(part, subtype)
    };
    accept.split(',').map(Clause::parse).any(|clause| available.iter().any(|media| matches(&clause, media)))
}

/// Type and subtype; a bare `*` is both.
fn halves(media: &str) -> (&str, &str) {
    media.split_once('/').unwrap_or((media, if media == "*" { "*" } else { "" }))
}

struct Clause<'a> {
    media: &'a str,
    weight: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    /// The clauses of a header by preference, highest first.
    fn sorted(accept: &'a str) -> Vec<Self> {
        let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(a.wildcards().cmp(&b.wildcards())));
        clauses
    }

    fn wildcards(&self) -> usize {
        self.media.split('/').filter(|part| *part == "*").count()
    }

    fn matches(&self, media: &str) -> bool {
        match self.media {
            "*" | "*/*" => true,
            "application/*" => media.starts_with("application/"),
            exact => exact == media,
        }
    }

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
            // not for streams
            "application/yaml" if self.get("stream").is_empty() => Some(Form::Yaml),
            _ => None,
        }
    }

    fn get(&self, key: &str) -> &'a str {
        self.parameters.iter().find(|(k, _)| *k == key).map_or("", |(_, value)| value)
    }

    fn transform(&self, names: &Names, offer: Offer, form: Form) -> Option<Transform> {
        // only JSON and protobuf stream, and only watches do
        let stream = self.get("stream");
        if !stream.is_empty() && (form == Form::Yaml || stream != "watch") {
            return None;
        }
        let version = self.get("v");
        let beta = version == "v1beta1";
        if ["as", "g", "v"].iter().all(|key| self.parameters.iter().all(|(k, _)| k != key)) {
            let is_served = form != Form::Protobuf || offer.protobuf;
            return is_served.then_some(Transform::Whole);
        }
        if !offer.transforms || self.get("g") != names.meta_group() || !matches!(version, "v1" | "v1beta1") {
            return None;
        }
        match self.get("as") {
            // tables have no protobuf encoding
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
        let offer = Offer { transforms: true, tables: true, stream: true, protobuf: true, route: true };
        Output::parse(Some(accept), &Names::default(), offer).map_err(|error| error.code)
    }

    fn parse_custom(accept: &str) -> Result<Output, String> {
        let offer = Offer { transforms: true, tables: true, stream: true, protobuf: false, route: false };
        Output::parse(Some(accept), &Names::default(), offer).map_err(|error| error.message)
    }

    #[test]
    fn custom_resources_have_no_route_that_knows_media_types() {
        let whole = |form| Output { form, transform: Transform::Whole };
        assert_eq!(parse("application/*"), Err(406));
        assert_eq!(parse_custom("application/*"), Ok(whole(Form::Json)));
        assert_eq!(parse("*/*, application/yaml"), Ok(whole(Form::Yaml)));
        assert_eq!(
            parse_custom("application/vnd.kubernetes.protobuf, application/yaml"),
            Ok(whole(Form::Yaml))
        );
        let partial = "as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        assert_eq!(
            parse_custom(&format!("application/vnd.kubernetes.protobuf;{partial}")),
            Ok(Output { form: Form::Protobuf, transform: Transform::Partial { beta: false } })
        );
        let accepted = "only the following media types are accepted: application/json, application/yaml, \
                        application/vnd.kubernetes.protobuf";
        for refused in
            ["text/plain", "APPLICATION/JSON", "application/json;v=v1", "application/yaml;stream=watch"]
        {
            assert_eq!(parse_custom(refused), Err(accepted.to_owned()), "{refused}");
        }
    }

    #[test]
    fn wildcards_stand_for_types_and_subtypes() {
        let accepts = |accept| accepts_any(Some(accept), &["application/json", "text/x"]);
        for accept in
            ["", "*", "*/*", "application/*", "*/json", "image/png, application/json;q=0.1", "text/*"]
        {
            assert!(accepts(accept), "{accept}");
        }
        for accept in ["text/plain", "image/*", "APPLICATION/JSON", "application", "application/yaml"] {
            assert!(!accepts(accept), "{accept}");
        }
        assert!(accepts_any(None, &["application/json"]));
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
