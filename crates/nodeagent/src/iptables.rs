//! Chains of iptables that other parts of a cluster, such as kube-proxy, refer to: packets to drop and to masquerade are
//! marked in one chain and handled in another.
//!
//! A canary chain in each table shows whether another program has flushed the tables; then everything is made again. A
//! machine without iptables is left alone.

use env::World;
use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

/// The time between looks at the canaries.
const PERIOD: Duration = Duration::from_secs(60);
/// How long one command may take; it waits for the lock of iptables for five seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
const CANARY: &str = "KUBE-KUBELET-CANARY";
const TABLES: [&str; 3] = ["mangle", "nat", "filter"];
const MARK_DROP: &str = "KUBE-MARK-DROP";
const MARK_MASQUERADE: &str = "KUBE-MARK-MASQ";
const POSTROUTING: &str = "KUBE-POSTROUTING";
const FIREWALL: &str = "KUBE-FIREWALL";

/// The bits of marks, and the programs.
pub struct IptablesChains {
    pub world: World,
    pub masquerade_bit: u32,
    pub drop_bit: u32,
    pub programs: Vec<IptablesProgram>,
}

#[derive(Debug, Clone)]
pub struct IptablesProgram {
    pub path: PathBuf,
    pub is_ipv6: bool,
}

impl IptablesProgram {
    /// The programs of both families, as the search path has them.
    pub fn usual() -> Vec<Self> {
        let program = |path: &str, is_ipv6| IptablesProgram { path: path.into(), is_ipv6 };
        vec![program("iptables", false), program("ip6tables", true)]
    }
}

/// A rule: whether it is the first of its chain, its table, its chain, and the arguments.
struct Rule {
    is_first: bool,
    table: &'static str,
    chain: &'static str,
    arguments: Vec<String>,
}

fn rule(is_first: bool, table: &'static str, chain: &'static str, arguments: &[&str]) -> Rule {
    let arguments = arguments.iter().map(|&it| it.to_owned()).collect();
    Rule { is_first, table, chain, arguments }
}

impl IptablesChains {
    /// Makes the chains, and again when they are gone, until the task is dropped.
    pub async fn run(self) {
        loop {
            for program in &self.programs {
                match self.sync(program).await {
                    Ok(()) => {}
                    Err(why) if why.kind() == io::ErrorKind::NotFound => {
                        tracing::debug!(program = %program.path.display(), "the machine has no such program");
                    }
                    Err(why) => {
                        tracing::warn!(program = %program.path.display(), %why, "chains were not made");
                    }
                }
            }
            env::sleep(&self.world, PERIOD).await;
        }
    }

    /// Makes what is missing, unless all canaries are there.
    pub async fn sync(&self, program: &IptablesProgram) -> io::Result<()> {
        let mut is_whole = true;
        for table in TABLES {
            is_whole &= run(program, &["-t", table, "-S", CANARY]).await?.status.success();
        }
        if is_whole {
            return Ok(());
        }
        let chains =
            [("nat", MARK_DROP), ("nat", MARK_MASQUERADE), ("nat", POSTROUTING), ("filter", FIREWALL)];
        for (table, chain) in chains {
            ensure_chain(program, table, chain).await?;
        }
        for rule in self.rules(program.is_ipv6) {
            ensure_rule(program, &rule).await?;
        }
        // last, so that a failure is repeated
        for table in TABLES {
            ensure_chain(program, table, CANARY).await?;
        }
        Ok(())
    }

    fn rules(&self, is_ipv6: bool) -> Vec<Rule> {
        let mark = |bit: u32| format!("{:#010x}", 1_u32.checked_shl(bit).unwrap_or(0));
        let (drop, masquerade) = (mark(self.drop_bit), mark(self.masquerade_bit));
        let (drop_mask, masquerade_mask) = (format!("{drop}/{drop}"), format!("{masquerade}/{masquerade}"));
        let mut rules = vec![
            rule(false, "nat", MARK_DROP, &["-j", "MARK", "--or-mark", &drop]),
            rule(false, "filter", FIREWALL, &["-m", "mark", "--mark", &drop_mask, "-j", "DROP"]),
        ];
        if !is_ipv6 {
            // services on the loopback address are not for the network
            let local = "127.0.0.0/8";
            let known = "RELATED,ESTABLISHED,DNAT";
            let arguments =
                ["-d", local, "!", "-s", local, "-m", "conntrack", "!", "--ctstate", known, "-j", "DROP"];
            rules.push(rule(false, "filter", FIREWALL, &arguments));
        }
        for chain in ["OUTPUT", "INPUT"] {
            rules.push(rule(true, "filter", chain, &["-j", FIREWALL]));
        }
        rules.extend([
            rule(false, "nat", MARK_MASQUERADE, &["-j", "MARK", "--or-mark", &masquerade]),
            rule(true, "nat", "POSTROUTING", &["-j", POSTROUTING]),
            rule(false, "nat", POSTROUTING, &["-m", "mark", "!", "--mark", &masquerade_mask, "-j", "RETURN"]),
            // a packet that is masqueraded once is not marked for other rules
            rule(false, "nat", POSTROUTING, &["-j", "MARK", "--xor-mark", &masquerade]),
            rule(false, "nat", POSTROUTING, &["-j", "MASQUERADE"]),
        ]);
        rules
    }
}

async fn ensure_chain(program: &IptablesProgram, table: &str, chain: &str) -> io::Result<()> {
    let made = run(program, &["-t", table, "-N", chain]).await?;
    // the status of a chain that exists
    if made.status.success() || made.status.code() == Some(1) { Ok(()) } else { Err(failure(&made)) }
}

async fn ensure_rule(program: &IptablesProgram, rule: &Rule) -> io::Result<()> {
    let with = |operation: &'static str| {
        let mut all = vec!["-t", rule.table, operation, rule.chain];
        all.extend(rule.arguments.iter().map(String::as_str));
        all
    };
    if run(program, &with("-C")).await?.status.success() {
        return Ok(());
    }
    let made = run(program, &with(if rule.is_first { "-I" } else { "-A" })).await?;
    if made.status.success() { Ok(()) } else { Err(failure(&made)) }
}

fn failure(output: &Output) -> io::Error {
    io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

async fn run(program: &IptablesProgram, arguments: &[&str]) -> io::Result<Output> {
    let mut command = tokio::process::Command::new(&program.path);
    command.args(["-w", "5"]).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    match env::io::timeout(TIMEOUT, command.output()).await {
        Ok(output) => output,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write_program;
    use env::Simulated;
    use std::path::Path;

    /// A program that keeps chains and rules as lines of files.
    fn fake(folder: &Path) -> IptablesProgram {
        let script = format!(
            r#"cd {} || exit 3
shift 2
table=$2; operation=$3; chain=$4; shift 4
case $operation in
-S) test -e "$table.$chain" ;;
-N) test -e "$table.$chain" && exit 1; touch "$table.$chain"; echo "N $table $chain" >> log ;;
-C) grep -qxF -- "$*" "$table.$chain" 2>/dev/null ;;
-A) echo "$*" >> "$table.$chain"; echo "A $table $chain" >> log ;;
-I) echo "$*" >> "$table.$chain"; echo "I $table $chain" >> log ;;
*) exit 2 ;;
esac
"#,
            folder.display()
        );
        let path = folder.join("iptables");
        write_program(&path, &script);
        IptablesProgram { path, is_ipv6: false }
    }

    #[tokio::test]
    async fn chains_are_made_once_and_again_after_a_flush() {
        let folder = tempfile::tempdir().unwrap();
        let program = fake(folder.path());
        let world: World = Simulated::new(0, 1);
        let chains = IptablesChains { world, masquerade_bit: 14, drop_bit: 15, programs: Vec::new() };
        let take_log = || {
            let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            let _ = std::fs::remove_file(folder.path().join("log"));
            log.lines().count()
        };
        chains.sync(&program).await.unwrap();
        // seven chains and ten rules
        assert_eq!(take_log(), 17);
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("nat.KUBE-MARK-DROP"), "-j MARK --or-mark 0x00008000\n");
        assert_eq!(read("nat.KUBE-MARK-MASQ"), "-j MARK --or-mark 0x00004000\n");
        assert!(read("filter.KUBE-FIREWALL").contains("127.0.0.0/8"));
        assert!(read("filter.INPUT").contains("-j KUBE-FIREWALL"));
        chains.sync(&program).await.unwrap();
        assert_eq!(take_log(), 0);
        // another program has flushed one table
        for name in ["KUBE-KUBELET-CANARY", "KUBE-FIREWALL", "INPUT", "OUTPUT"] {
            std::fs::remove_file(folder.path().join(format!("filter.{name}"))).unwrap();
        }
        chains.sync(&program).await.unwrap();
        assert_eq!(take_log(), 6);
        let none = IptablesProgram { path: folder.path().join("none"), is_ipv6: true };
        assert_eq!(chains.sync(&none).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
