import { familyOf, type Ip, ipFromBytes } from "../../ffi/address.ts";
import { FAMILY_NAMES } from "../../ffi/nft/family_names.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { containsText, ruleComment } from "../../ffi/nft/rule_contents.ts";
import * as uapi from "../../ffi/nft/uapi.ts";
import { type Owner, ownerText, parseOwner } from "../../plugins/lib/model/owner.ts";
import { readAddressKey } from "../../plugins/lib/policy/attached_pods.ts";
import { CLOSED_CHAIN, directionMap, podAddressSet, policyTable } from "../../plugins/lib/ruleset/policy_tables.ts";
import { parsePortElement } from "../../plugins/lib/ruleset/port_elements.ts";
import { TABLES } from "../../plugins/lib/ruleset/repair.ts";
import { RECORD_SET } from "../../plugins/lib/ruleset/owner_records.ts";
import { elementText, PROTOCOL_NAMES } from "./datatype_text.ts";
import type {
  RulesetChain,
  RulesetRule,
  RulesetTable,
  ShownElement,
  ShownIsolation,
  ShownPolicy,
  ShownPublishedPort,
} from "./node_tree.ts";
import { ruleText } from "./rule_text.ts";

/** Ours and the Go plugins' chains in other tables. */
const CNI_CHAIN_PREFIX = "CNI-";

const HOOK_NAMES: Readonly<Record<number, string>> = {
  [uapi.NF_INET_PRE_ROUTING]: "prerouting",
  [uapi.NF_INET_LOCAL_IN]: "input",
  [uapi.NF_INET_FORWARD]: "forward",
  [uapi.NF_INET_LOCAL_OUT]: "output",
  [uapi.NF_INET_POST_ROUTING]: "postrouting",
};

interface ListedSet extends nft.Set {
  readonly key: nft.TableKey;
  readonly elements: readonly nft.Element[];
}

export interface ShownRuleset {
  readonly tables: readonly RulesetTable[];
  elementsOf(owner: Owner): ShownElement[];
  publishedPortsOf(owner: Owner): ShownPublishedPort[];
  policyOf(owner: Owner): ShownPolicy | undefined;
}

/** Empty on a kernel without nf_tables. */
export function showRuleset(nl: Netlink): ShownRuleset {
  const present = listTables(nl);
  const sets = TABLES.filter((own) => present.some((key) => isSameTable(key, own)))
    .flatMap((key) => listSets(nl, key));
  const owned = Map.groupBy(
    sets.flatMap((set) => set.elements.map((element) => ({ set, element }))),
    ({ element: { comment = "" } }) => ownerKey(parseOwner(comment)),
  );
  return {
    tables: present.map((key) => showTable(nl, key, sets.filter((set) => isSameTable(set.key, key))))
      .filter(({ chains, sets }) => chains.length + sets.length > 0),
    elementsOf: (owner) =>
      (owned.get(ownerText(owner)) ?? []).map(({ set, element }) => ({
        table: tableName(set.key),
        set: set.name ?? "",
        element: elementText(set, element),
      })),
    publishedPortsOf: (owner) =>
      mergeFamilies((owned.get(ownerText(owner)) ?? []).flatMap(({ set, element }) => showPort(set, element))),
    policyOf: (owner) => showPolicy(sets, owned.get(ownerText(owner)) ?? []),
  };
}

/** The guard has the addresses of pods, the maps have those that are isolated. */
function showPolicy(
  sets: readonly ListedSet[],
  owned: readonly { readonly set: ListedSet; readonly element: nft.Element }[],
): ShownPolicy | undefined {
  const ips = owned.filter(({ set }) => isSameTable(set.key, policyTable) && isPodAddressSet(set.name))
    .map(({ element }) => readAddressKey(element.key).ip);
  if (ips.length === 0) return undefined;
  const isolationFor = (direction: keyof ShownPolicy): ShownIsolation => {
    const chains = ips.map((ip) => chainOf(sets, directionMap(direction, familyOf(ip)), ip))
      .filter((chain) => chain !== undefined);
    if (chains.includes(CLOSED_CHAIN)) return "closed";
    return chains.length > 0 ? "isolated" : "open";
  };
  return { ingress: isolationFor("ingress"), egress: isolationFor("egress") };
}

const isPodAddressSet = (name: string | undefined): boolean => name === podAddressSet(4) || name === podAddressSet(6);

function chainOf(sets: readonly ListedSet[], map: string, ip: Ip): string | undefined {
  const found = sets.find(({ key, name }) => isSameTable(key, policyTable) && name === map);
  return found?.elements.find(({ key }) => ipFromBytes(key) === ip)?.data?.verdict?.chain;
}

const ownerKey = (owner: Owner | undefined): string => (owner ? ownerText(owner) : "");

function listTables(nl: Netlink): nft.TableKey[] {
  try {
    const tables = nft.listTables(nl).flatMap(({ family, name }) =>
      name !== undefined && FAMILY_NAMES[family] !== undefined ? [{ family, table: name }] : []
    );
    const own = TABLES.filter((key) => tables.some((table) => isSameTable(table, key)));
    return [...own, ...tables.filter((key) => !isOwn(key))];
  } catch (error) {
    if (error instanceof NetlinkError) return [];
    throw error;
  }
}

const isSameTable = (a: nft.TableKey, b: nft.TableKey): boolean => a.family === b.family && a.table === b.table;
const isOwn = (key: nft.TableKey): boolean => TABLES.some((own) => isSameTable(own, key));
const tableName = ({ family, table }: nft.TableKey): string => `${FAMILY_NAMES[family]} ${table}`;

/** Leaves out the records, which no rule uses. */
function listSets(nl: Netlink, key: nft.TableKey): ListedSet[] {
  return nft.listSets(nl, key).filter(({ name }) => name !== RECORD_SET)
    .map((set) => ({ ...set, key, elements: nft.listElements(nl, key, set.name ?? "") }));
}

function showTable(nl: Netlink, key: nft.TableKey, sets: readonly ListedSet[]): RulesetTable {
  const chains = nft.listChains(nl, key);
  const hasOwnChain = chains.some(({ name = "" }) => name.startsWith(CNI_CHAIN_PREFIX));
  const shown = isOwn(key) ? chains : hasOwnChain ? chains.filter(isCniOrBaseChain) : [];
  return {
    family: FAMILY_NAMES[key.family]!,
    name: key.table,
    chains: shown.map((chain) => showChain(nl, key, chain)).filter((chain) =>
      isOwn(key) || chain.name.startsWith(CNI_CHAIN_PREFIX) || chain.rules.length > 0
    ),
    sets: sets.map(({ name = "", userdata, elements }) => ({
      name,
      ...userdata?.comment !== undefined && { comment: userdata.comment },
      elements: elements.length,
    })),
  };
}

const isCniOrBaseChain = ({ name = "", hook }: nft.Chain): boolean =>
  name.startsWith(CNI_CHAIN_PREFIX) || hook !== undefined;

function showChain(nl: Netlink, key: nft.TableKey, chain: nft.Chain): RulesetChain {
  const { name = "", comment, type, hook, policy } = chain;
  const isShownWhole = isOwn(key) || name.startsWith(CNI_CHAIN_PREFIX);
  const rules = nft.listLazyRules(nl, key, name).filter((rule) => isShownWhole || containsText(rule, CNI_CHAIN_PREFIX));
  return {
    name,
    ...comment && { comment },
    ...type !== undefined && { type },
    ...hook?.number !== undefined && { hook: HOOK_NAMES[hook.number] ?? String(hook.number) },
    ...hook?.priority !== undefined && { priority: hook.priority },
    ...policy !== undefined && { policy: policy === uapi.NF_DROP ? "drop" : "accept" },
    rules: rules.map((rule) => showRule(rule, key.family)),
  };
}

function showRule(rule: nft.LazyRule, family: number): RulesetRule {
  const expressions = rule.expressions();
  const counter = expressions.find((expression) => expression.kind === "counter");
  const comment = ruleComment(rule);
  return {
    text: ruleText(expressions, family),
    ...comment !== "" && { comment },
    ...counter?.kind === "counter" &&
      { packets: Number(counter.packets ?? 0n), bytes: Number(counter.bytes ?? 0n) },
  };
}

function showPort({ name = "" }: ListedSet, element: nft.Element): ShownPublishedPort[] {
  const port = parsePortElement({ ...element, set: name });
  if (!port) return [];
  const { protocol, hostAddress, hostPort, address, containerPort } = port;
  return [{
    protocol: PROTOCOL_NAMES[protocol] ?? String(protocol),
    ...hostAddress !== undefined && { hostAddress },
    hostPort,
    containerPort,
    containerAddresses: [address],
  }];
}

/** A port for all addresses has one element for each family. */
function mergeFamilies(ports: readonly ShownPublishedPort[]): ShownPublishedPort[] {
  const merged = Map.groupBy(ports, publishedPortId).values();
  return [...merged].map((alike) => ({
    ...alike[0]!,
    containerAddresses: alike.flatMap(({ containerAddresses }) => containerAddresses),
  })).sort((a, b) => a.hostPort - b.hostPort);
}

export function publishedPortId({ protocol, hostAddress = "", hostPort, containerPort }: ShownPublishedPort): string {
  return `${hostAddress} ${hostPort}/${protocol} ${containerPort}`;
}
