/** Changes of links, addresses, routes and the like, as sentences. @module */
import { CURRENT_NETNS_PATH, currentNetns, type Netns, openNetns } from "../../ffi/netns/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { NLM_F_CREATE } from "../../ffi/netlink/message.ts";
import { exchange, isDump, type NetlinkRequest } from "../../ffi/netlink/socket.ts";
import { ENODEV } from "../../ffi/sys/errno.ts";
import * as link from "../../ffi/route/link.ts";
import { veth } from "../../ffi/route/link_kinds.ts";
import { IFF_UP } from "../../ffi/route/uapi.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { fstat } from "../../ffi/sys/stat.ts";
import { AF_INET6 } from "../../ffi/sys/uapi.ts";
import { type ObservedRequest, type RequestsActivity, unobserved } from "../../ffi/sys/observer.ts";
import { type Effect, type EffectKind, type EffectList, sysctlEffect } from "./effect.ts";
import { formatNetlinkRequest } from "./format_request.ts";
import { PORT_PROTOCOLS } from "./nft_effects.ts";

export interface LinkNames extends Disposable {
  find(netns: string, key: string | number): link.Link | undefined;
  /** Finds the namespace of a descriptor of the command, if that was given or asked before. */
  findPathOf(netnsFd: number): string | undefined;
  query(netns: string, request: ObservedRequest, onMessage: RequestsActivity["onMessage"]): void;
  /** The other end of a veth pair, if its namespace was asked before. */
  findPeer(netns: string, end: link.Link): { readonly netns: string; readonly index: number } | undefined;
}

/** Opens a namespace when it is asked for. @param paths of other namespaces that links may be made in */
export function newLinkNames(paths: readonly string[] = []): LinkNames {
  const opened = new Map<string, Netns>([[CURRENT_NETNS_PATH, currentNetns()]]);
  const open = (path: string) => {
    const netns = opened.get(path) ?? openNetns(path);
    opened.set(path, netns);
    return netns;
  };
  for (const path of paths) open(path);
  const find: LinkNames["find"] = (path, key) =>
    unobserved(() => ignoreSystemErrors(() => link.find(open(path || CURRENT_NETNS_PATH).route, key)));
  return {
    find,
    findPathOf(netnsFd) {
      const { identity } = fstat(netnsFd);
      return [...opened].find(([, netns]) => netns.identity === identity)?.[0];
    },
    query(path, request, onMessage) {
      unobserved(() => exchange(open(path).route, [request as NetlinkRequest], onMessage, { hasOneReply: true }));
    },
    findPeer(_, { index, linkIndex, info }) {
      if (info?.kind !== "veth" || linkIndex === undefined) return undefined;
      const netns = [...opened.keys()].find((path) => {
        const peer = find(path, linkIndex);
        return peer?.info?.kind === "veth" && peer.linkIndex === index;
      });
      return netns === undefined ? undefined : { netns, index: linkIndex };
    },
    [Symbol.dispose]() {
      for (const netns of opened.values()) netns[Symbol.dispose]();
    },
  };
}

export interface NetlinkEffects {
  readonly effects: EffectList;
  readonly names: LinkNames;
  /** Indices of links that are removed together, by the group that they were put into. */
  readonly groups: Map<string, number[]>;
  /** Links that were removed or moved away: namespace and index. */
  readonly removed: Set<string>;
  /** Links that were moved to another namespace: that and the name there. */
  readonly moved: Map<string, MovedLink>;
  /** What effects call a namespace: `host`, or the path of the container. */
  labelOf(netns: string): string;
}

/** It is where it was, since its move was not sent. */
export interface MovedLink {
  readonly netns: string;
  readonly index: number;
  readonly name: string;
}

/** @param step what the plugin calls it: `remove rule from …` */
export function addNetlinkEffects(
  state: NetlinkEffects,
  { netns, requests }: RequestsActivity,
  step: string | undefined,
): void {
  for (const request of requests) addEffect(state, netns, request, requests.length === 1 ? step : undefined);
}

function addEffect(state: NetlinkEffects, path: string, request: ObservedRequest, step: string | undefined): void {
  const { op: { name }, value } = request;
  const fields = value as LinkChanges & { readonly index?: number; readonly name?: string; readonly group?: number };
  const netns = state.labelOf(findPlaceOfNewLink(state, request) ?? path);
  const nameOf = (index: number) =>
    findMovedName(state, netns, index) ?? state.names.find(path, index)?.name ?? `${index}`;
  const linkName = fields.index ? nameOf(fields.index) : fields.name ?? "";
  const add = (effect: Pick<Effect, "kind" | "action" | "sentence" | "target" | "peer">) =>
    state.effects.add({ ...effect, netns, details: [formatNetlinkRequest(request)] });
  const groupKey = `${netns} ${fields.group}`;
  if (name === "RTM_NEWLINK" && Object.keys(value).sort().join() === "group,index") {
    const group = state.groups.get(groupKey) ?? [];
    group.push(fields.index!);
    state.groups.set(groupKey, group);
    return;
  }
  if (name === "RTM_DELLINK") {
    const keys = fields.group === undefined ? [fields.index || linkName] : state.groups.get(groupKey) ?? [];
    for (const key of keys) {
      const found = state.names.find(path, key);
      if (found) hideLink(state, path, found);
      const target = found?.name ?? `${key}`;
      const rest = found?.info?.kind === "veth" ? ", routes and peer" : " and routes";
      const sentence = `remove link "${target}" in ${netns}, with its addresses${rest}`;
      add({ kind: "link", action: "remove", sentence, target });
    }
    return;
  }
  const arpNotify = (value as DevconfValue).families?.inet?.conf?.arpNotify;
  if (name === "RTM_NEWLINK" && arpNotify !== undefined) {
    return add(sysctlEffect(`net/ipv4/conf/${linkName}/arp_notify`, `${arpNotify}`, netns));
  }
  const move = name === "RTM_NEWLINK" && !isCreation(request) ? moveLink(state, path, request) : undefined;
  if (move) {
    const sentence = `move link "${linkName}" from ${netns} to ${move.label}, as "${move.name}"`;
    return add({ kind: "link", action: "change", sentence, target: linkName });
  }
  if (name === "RTM_NEWLINK" && !isCreation(request)) {
    const { index: _, ...changes } = fields;
    const sentence = `change link "${linkName}" in ${netns}: ${formatChanges(request, changes)}`;
    return add({ kind: "link", action: "change", sentence, target: linkName });
  }
  const peer = peerOf(request)?.name;
  const text = describeVethPair(request, linkName, nameOf) ?? describeNewLink(request, linkName) ??
    describeAltName(request, linkName) ?? describeAddress(request, linkName) ?? describeRoute(request, nameOf) ??
    describeFlow(request) ?? step;
  const sentence = `${withLinkNames(text ?? formatNetlinkRequest(request), nameOf)} in ${netns}`;
  add({ kind: kindOf(name), action: actionOf(request), sentence, target: linkName, ...peer !== undefined && { peer } });
}

/** Finds it for a link that is no pair, and that the kernel puts into another namespace at once. */
function findPlaceOfNewLink({ names }: NetlinkEffects, request: ObservedRequest): string | undefined {
  const { netnsFd } = request.value as { readonly netnsFd?: number };
  return request.op.name === "RTM_NEWLINK" && isCreation(request) && netnsFd !== undefined
    ? names.findPathOf(netnsFd)
    : undefined;
}

interface DevconfValue {
  readonly families?: { readonly inet?: { readonly conf?: { readonly arpNotify?: number } } };
}

/** The request is for the host's end. */
function describeVethPair(
  request: ObservedRequest,
  linkName: string,
  nameOf: (index: number) => string,
): string | undefined {
  if (!isNewLink(request, "veth")) return undefined;
  const { master } = request.value as link.Link;
  const peer = peerOf(request);
  const place = peer?.netnsFd === undefined ? "" : " in the container";
  const port = master === undefined ? "" : `, a port of "${nameOf(master)}"`;
  return `add link ${describeNewName(peer?.name)}${place} and its peer ${describeNewName(linkName)}${port}`;
}

function describeNewLink(request: ObservedRequest, linkName: string): string | undefined {
  const { info } = request.value as Partial<link.Link>;
  return info?.kind !== undefined && isNewLink(request, info.kind)
    ? `add ${info.kind} ${describeNewName(linkName)}`
    : undefined;
}

function isNewLink(request: ObservedRequest, kind: string): boolean {
  const { info } = request.value as Partial<link.Link>;
  return request.op.name === "RTM_NEWLINK" && isCreation(request) && info?.kind === kind;
}

function peerOf(request: ObservedRequest) {
  const { info } = request.value as Partial<link.Link>;
  return isNewLink(request, "veth") && info?.data ? veth.of(request.value as link.Link)?.peer : undefined;
}

/** The command itself makes up another one. */
function describeNewName(name = ""): string {
  return /^veth[0-9a-f]{8}$/.test(name) ? `"${name}" (a random name)` : `"${name}"`;
}

interface FlowValue {
  readonly original?: {
    readonly ip?: Readonly<Record<"source4" | "destination4" | "source6" | "destination6", string | undefined>>;
    readonly protocol?: { readonly number?: number; readonly destinationPort?: number };
  };
}

function describeFlow({ op: { name }, value }: ObservedRequest): string | undefined {
  const { ip, protocol } = (value as FlowValue).original ?? {};
  if (name !== "IPCTNL_MSG_CT_DELETE" || !ip) return undefined;
  const service = `${protocol?.destinationPort}/${PORT_PROTOCOLS[protocol?.number ?? 0] ?? protocol?.number}`;
  return `forget connections of ${ip.source4 ?? ip.source6} to ${ip.destination4 ?? ip.destination6} ${service}`;
}

function describeAltName({ op: { name }, value }: ObservedRequest, linkName: string): string | undefined {
  const { properties } = value as { readonly properties?: { readonly altName?: string } };
  return name === "RTM_NEWLINKPROP"
    ? `give link "${linkName}" the alternative name "${properties?.altName}"`
    : undefined;
}

function describeAddress({ op: { name }, value }: ObservedRequest, linkName: string): string | undefined {
  const { local, prefixLength } = value as { readonly local?: string; readonly prefixLength?: number };
  if (!/^RTM_(NEW|DEL)ADDR$/.test(name)) return undefined;
  const [verb, preposition] = name === "RTM_NEWADDR" ? ["add", "to"] : ["remove", "from"];
  return `${verb} address ${local}/${prefixLength} ${preposition} link "${linkName}"`;
}

interface RouteValue {
  readonly dst?: string;
  readonly dstLen?: number;
  readonly gateway?: string;
  readonly oif?: number;
  readonly family?: number;
}

function describeRoute(
  { op: { name }, value }: ObservedRequest,
  nameOf: (index: number) => string,
): string | undefined {
  if (name !== "RTM_NEWROUTE") return undefined;
  const { dst, dstLen = 0, gateway, oif, family } = value as RouteValue;
  const target = `${dst ?? (family === AF_INET6 ? "::" : "0.0.0.0")}/${dstLen}`;
  const via = gateway === undefined ? "" : ` via ${gateway}`;
  return `add route to ${target}${via}${oif ? ` dev "${nameOf(oif)}"` : ""}`;
}

/** Later requests do not find the link, nor its peer. */
function hideLink(state: NetlinkEffects, path: string, found: link.Link): void {
  state.removed.add(linkKey(state, path, found.index));
  const peer = state.names.findPeer(path, found);
  if (peer) state.removed.add(linkKey(state, peer.netns, peer.index));
}

const linkKey = ({ labelOf }: NetlinkEffects, path: string, index: number): string => `${labelOf(path)} ${index}`;

/** Has queries for links answered as if links were removed. @throws {NetlinkError} `ENODEV` */
export function hideRemovedLinks(state: NetlinkEffects, activity: RequestsActivity): void {
  const { netns, requests } = activity;
  if (state.removed.size === 0 || requests[0]?.op.name !== "RTM_GETLINK") return;
  // struct ifinfomsg { u8 family; u8 pad; u16 type; i32 index; … }
  const isRemoved = (index: number) => state.removed.has(linkKey(state, netns, index));
  const { onMessage } = activity;
  activity.onMessage = (payload, index) => {
    if (!isRemoved(payload.view.getInt32(payload.offset + 4, true))) onMessage(payload, index);
  };
  requests.forEach(({ op, value, flags = 0 }, position) => {
    const { index, name } = value as { readonly index?: number; readonly name?: string };
    const key = index || name;
    if (isDump(flags) || key === undefined || !isRemoved(state.names.find(netns, key)?.index ?? 0)) return;
    throw new NetlinkError({ request: op.name, errno: ENODEV, index: position });
  });
}

/** Later requests find the link in the other namespace. @returns `undefined` if it is not moved to a known one */
function moveLink(
  state: NetlinkEffects,
  path: string,
  { value }: ObservedRequest,
): { readonly label: string; readonly name: string } | undefined {
  const { index, netnsFd, name } = value as Partial<link.Link> & { readonly netnsFd?: number };
  if (!index || netnsFd === undefined) return undefined;
  const [target, found] = [state.names.findPathOf(netnsFd), state.names.find(path, index)];
  if (target === undefined || !found) return undefined;
  const [label, newName] = [state.labelOf(target), name ?? found.name ?? ""];
  state.removed.add(linkKey(state, path, index));
  state.moved.set(`${label} ${newName}`, { netns: path, index, name: newName });
  return { label, name: newName };
}

function findMovedName({ moved }: NetlinkEffects, netns: string, index: number): string | undefined {
  return [...moved].find(([key, link]) => link.index === index && key === `${netns} ${link.name}`)?.[1].name;
}

/** Answers a query for a link that was moved. @returns false if it is for another */
export function answerForMovedLink(state: NetlinkEffects, { netns, requests, onMessage }: RequestsActivity): boolean {
  const [request] = requests;
  if (state.moved.size === 0 || requests.length !== 1 || request?.op.name !== "RTM_GETLINK") return false;
  const { name, ...rest } = request.value as { readonly name?: string };
  const moved = state.moved.get(`${state.labelOf(netns)} ${name}`);
  if (!moved) return false;
  state.names.query(moved.netns, { ...request, value: { ...rest, index: moved.index } }, onMessage);
  return true;
}

/** Leaves out the name of the request, and what only says how it is sent. */
function formatChanges({ op }: ObservedRequest, changes: LinkChanges): string {
  const { flags, change, netnsFd, ...others } = changes;
  const isSetUpOrDown = change === IFF_UP;
  const rest = isSetUpOrDown ? others : { flags, change, ...others };
  return [
    ...isSetUpOrDown ? [flags === IFF_UP ? "up" : "down"] : [],
    ...netnsFd !== undefined ? ["into another namespace"] : [],
    ...formatNetlinkRequest({ op, value: rest }).split(" ").slice(1),
  ].join(" ");
}

interface LinkChanges {
  readonly flags?: number;
  readonly change?: number;
  readonly netnsFd?: number;
}

/** Errors name some links by number. */
function withLinkNames(step: string, nameOf: (index: number) => string): string {
  return step.replace(/\blink "?(\d+)"?/g, (_, index) => `link "${nameOf(Number(index))}"`);
}

const KINDS: readonly (readonly [RegExp, EffectKind])[] = [
  [/^RTM_\w*LINK/, "link"],
  [/^RTM_\w*ADDR/, "address"],
  [/^RTM_\w*ROUTE/, "route"],
  [/^RTM_\w*RULE/, "rule"],
  [/^RTM_\w*(QDISC|TFILTER)/, "qdisc"],
  [/CT_/, "conntrack"],
];

const kindOf = (name: string): EffectKind => KINDS.find(([pattern]) => pattern.test(name))?.[1] ?? "netlink";

function actionOf(request: ObservedRequest): Effect["action"] {
  return request.op.name.includes("DEL") ? "remove" : isCreation(request) ? "add" : "change";
}

const isCreation = ({ flags = 0 }: ObservedRequest): boolean => (flags & NLM_F_CREATE) !== 0;
