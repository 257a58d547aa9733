//! `/healthz`, `/livez` and `/readyz`: every check alone or together, for machines and for people.

use rest::options::Query;

/// A check: its name, and what is wrong now.
pub struct Check {
    pub name: &'static str,
    pub problem: Option<String>,
    /// `/healthz` and `/livez` do not look at it.
    pub only_ready: bool,
}

/// Status code and text.
pub struct Report {
    pub code: u16,
    pub text: String,
    /// Answers to machines are short; what failed is told to those who may ask for it.
    pub failed: Vec<&'static str>,
}

/// Answers `/<endpoint>` or `/<endpoint>/<check>`; nothing when there is no such check.
pub fn answer(endpoint: &str, one: Option<&str>, query: &Query, checks: Vec<Check>) -> Option<Report> {
    let checks: Vec<_> =
        checks.into_iter().filter(|check| endpoint == "readyz" || !check.only_ready).collect();
    if let Some(name) = one {
        let check = checks.into_iter().find(|check| check.name == name)?;
        return Some(match check.problem {
            None => Report { code: 200, text: "ok".to_owned(), failed: Vec::new() },
            Some(why) => Report {
                code: 500,
                text: format!("internal server error: {why}\n"),
                failed: vec![check.name],
            },
        });
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut text = String::new();
    let mut failed = Vec::new();
    for check in &checks {
        let name = check.name;
        match &check.problem {
            _ if excluded.contains(&name) => text.push_str(&format!("[+]{name} excluded: ok\n")),
            None => text.push_str(&format!("[+]{name} ok\n")),
            Some(_) => {
                failed.push(name);
                text.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    if !failed.is_empty() {
        text.push_str(&format!("{endpoint} check failed\n"));
        return Some(Report { code: 500, text, failed });
    }
    if query.get("verbose").is_none() {
        return Some(Report { code: 200, text: "ok".to_owned(), failed });
    }
    text.push_str(&format!("{endpoint} check passed\n"));
    Some(Report { code: 200, text, failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(endpoint: &str, one: Option<&str>, query: &str, store: Option<&str>) -> Option<(u16, String)> {
        let checks = vec![
            Check { name: "ping", problem: None, only_ready: false },
            Check { name: "etcd", problem: store.map(str::to_owned), only_ready: false },
            Check { name: "shutdown", problem: None, only_ready: true },
        ];
        answer(endpoint, one, &Query::parse(query), checks).map(|report| (report.code, report.text))
    }

    #[test]
    fn machines_get_ok_and_people_get_lines() {
        assert_eq!(run("livez", None, "", None), Some((200, "ok".into())));
        assert_eq!(
            run("readyz", None, "verbose&exclude=etcd", Some("down")),
            Some((200, "[+]ping ok\n[+]etcd excluded: ok\n[+]shutdown ok\nreadyz check passed\n".into()))
        );
        assert_eq!(
            run("livez", None, "", Some("down")),
            Some((500, "[+]ping ok\n[-]etcd failed: reason withheld\nlivez check failed\n".into()))
        );
    }

    #[test]
    fn single_checks() {
        assert_eq!(run("livez", Some("ping"), "", None), Some((200, "ok".into())));
        assert_eq!(
            run("livez", Some("etcd"), "", Some("down")),
            Some((500, "internal server error: down\n".into()))
        );
        assert_eq!(run("livez", Some("shutdown"), "", None), None);
        assert_eq!(run("livez", Some("bogus"), "", None), None);
    }
}
