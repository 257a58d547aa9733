//! Lets packets of pods pass where another program drops what is forwarded.
//!
//! Docker and some firewalls set the policy of the iptables chain `FORWARD` to drop. A packet that one chain drops cannot
//! be accepted by another, so rules that accept packets from and to pods of this node are appended to that chain. With
//! the policy accept nothing is written.

use super::plan::NodeNetwork;
use crate::netfilter::{
    AddressSide, Batch, Change, Connection, Error, Family, Hook, Prefix, Rule, Statement, Table, TableId,
    Verdict,
};
use apimachinery::net::Network;

const CHAIN: &str = "FORWARD";

/// The tables of iptables.
fn table_id(family: Family) -> TableId {
    TableId::new(family, "filter")
}

/// Appends the rules that are missing. Returns whether there were any.
pub fn accept_pods(own: &NodeNetwork) -> Result<bool, Error> {
    let mut connection = Connection::open()?;
    let mut batch = Batch::default();
    for range in &own.ranges {
        let id = table_id(Family::of(range.base()));
        let (tables, _) = connection.read(std::slice::from_ref(&id))?;
        for rule in tables.get(&id).map(|table| missing_rules(table, range)).unwrap_or_default() {
            batch.push(Change::AddRule { table: id.clone(), chain: CHAIN.into(), rule });
        }
    }
    match batch.is_empty() {
        true => Ok(false),
        false => connection.commit(&batch).map(|()| true),
    }
}

fn missing_rules(table: &Table, range: &Network) -> Vec<Rule> {
    let Some(chain) = table.chains.get(CHAIN) else { return Vec::new() };
    if !chain.base.is_some_and(|base| base.hook == Hook::Forward && base.is_drop_policy) {
        return Vec::new();
    }
    let range = Prefix::new(range.base(), range.prefix());
    let rules = [AddressSide::Source, AddressSide::Destination].map(|side| {
        let statements = [Statement::in_network(side, &range), Statement::Verdict(Verdict::Accept)];
        Rule::new(statements).with_comment("packets of pods")
    });
    rules.into_iter().filter(|rule| !chain.rules.contains(rule)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netfilter::{BaseChain, Chain};

    #[test]
    fn rules_are_added_once_where_forwarded_packets_are_dropped() {
        let range = Network::parse("10.1.0.0/24").unwrap();
        let table = |base: BaseChain, rules: Vec<Rule>| {
            let mut table = Table::default();
            table.chains.insert(CHAIN.into(), Chain::base(base, rules));
            table
        };
        let drop = BaseChain { is_drop_policy: true, ..BaseChain::filter(Hook::Forward) };
        let rules = missing_rules(&table(drop, Vec::new()), &range);
        assert_eq!(rules.len(), 2);
        assert_eq!(missing_rules(&table(drop, rules[..1].to_vec()), &range), rules[1..]);
        assert_eq!(missing_rules(&table(drop, rules), &range), []);
        assert_eq!(missing_rules(&table(BaseChain::filter(Hook::Forward), Vec::new()), &range), []);
        assert_eq!(missing_rules(&Table::default(), &range), []);
    }
}
