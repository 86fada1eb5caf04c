import { findTable } from "../../../ffi/nft/objects.ts";
import { lives } from "../../../plugins/lib/links/address_claim.ts";
import { inetTable } from "../../../plugins/lib/ruleset/inet_table.ts";
import { checkMasquerade } from "../../../plugins/lib/veth/masquerade.ts";
import { isOfEarlierRelease, listMissingRules } from "../../../plugins/lib/ruleset/table.ts";
import { CniError } from "../../../spec/error.ts";
import { type Finding, ok, warning } from "../finding.ts";
import { missingRule, restoreOf } from "../missing_rule.ts";
import type { ExaminedContainer, Subject } from "../subject.ts";

/** The table `inet cni` and its masquerading. Ports have a check of their own. */
export function checkRuleset(subject: Subject): Finding[] {
  const { containers, masquerades } = subject;
  if (!containers.some((container) => needsRules(subject, container))) return [];
  const problems = checkTable(subject);
  if (problems.some(({ severity }) => severity === "broken")) return problems;
  const missing = masquerades ? containers.flatMap((container) => checkMasqueraded(subject, container)) : [];
  if (problems.length > 0 || missing.length > 0) return [...problems, ...missing];
  return [ok(`table "inet cni" is whole${masquerades ? ", and masquerades the containers" : ""}`)];
}

export function hasTable({ host }: Subject): boolean {
  return findTable(host.netns.nft, inetTable) !== undefined;
}

function needsRules({ masquerades, forwardAccept }: Subject, { publishedPorts }: ExaminedContainer): boolean {
  return masquerades || forwardAccept !== undefined || (publishedPorts?.mappings.length ?? 0) > 0;
}

function checkTable(subject: Subject): Finding[] {
  if (!hasTable(subject)) {
    const lost = "masquerading, published ports and accept rules are lost";
    return [missingRule(subject.network, `rules flushed: table "inet cni" is missing, so ${lost}`)];
  }
  const { nft } = subject.host.netns;
  if (isOfEarlierRelease(nft, inetTable)) {
    const what = 'table "inet cni" has the rules of an earlier release, which the next ADD upgrades';
    return [warning(what, ...restoreOf(subject.network))];
  }
  return listMissingRules(nft, inetTable).map(({ chain }) =>
    missingRule(subject.network, `rules are missing in chain "${chain}" of table "inet cni"`)
  );
}

function checkMasqueraded(subject: Subject, { owner, ips }: ExaminedContainer): Finding[] {
  const { netns } = subject.host;
  return ips.flatMap(({ address }) => {
    try {
      checkMasquerade(netns.nft, owner, [address], lives(netns));
      return [];
    } catch (error) {
      if (!(error instanceof CniError)) throw error;
      return [missingRule(subject.network, `no masquerade of ${address}: ${error.message}`)];
    }
  });
}
