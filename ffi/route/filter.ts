/**
 * Filters that redirect what comes in over one link to another link.
 *
 * Used as a namespace: `import * as filter from "../ffi/route/filter.ts"`. The classifier is u32, whose one condition always holds:
 * `matchall` says the same in fewer bytes and is missing from many kernels.
 *
 * @see linux/pkt_cls.h, linux/tc_act/tc_mirred.h, net/sched/cls_u32.c
 * @module
 */
import { attrList, attrs, variant } from "../netlink/attrs.ts";
import { be16, be32, bytes, cstr, i32, Reader, struct, u16, u32, u8, Writer } from "../netlink/codec.ts";
import { withRequestPurpose } from "../netlink/error.ts";
import { message, type MessageOut, NLM_F_CREATE, NLM_F_EXCL, type Operation } from "../netlink/message.ts";
import { dump, execute, type Netlink } from "../netlink/socket.ts";
import { INGRESS_HANDLE, tcmsg } from "./qdisc.ts";
import {
  ETH_P_ALL,
  RTM_GETTFILTER,
  RTM_NEWTFILTER,
  TC_ACT_STOLEN,
  TC_U32_TERMINAL,
  TCA_ACT_KIND,
  TCA_ACT_OPTIONS,
  TCA_EGRESS_REDIR,
  TCA_KIND,
  TCA_MIRRED_PARMS,
  TCA_OPTIONS,
  TCA_U32_ACT,
  TCA_U32_CLASSID,
  TCA_U32_SEL,
} from "./uapi.ts";

/** A filter, as in RTM_NEWTFILTER and its relatives; the layout of `options` follows from `kind`. */
export const filterMessage = message("filter", tcmsg, () => ({
  kind: [TCA_KIND, cstr],
  options: [TCA_OPTIONS, bytes],
}));
/** A filter as the kernel reports it. */
export type Filter = MessageOut<typeof filterMessage>;
type FilterOp = Operation<typeof filterMessage>;
const NEW: FilterOp = { name: "RTM_NEWTFILTER", type: RTM_NEWTFILTER, spec: filterMessage };
const GET: FilterOp = { name: "RTM_GETTFILTER", type: RTM_GETTFILTER, spec: filterMessage };

/** struct tc_u32_sel with one struct tc_u32_key behind it. */
const u32Selector = struct({
  flags: u8,
  shift: u8,
  nkeys: u8,
  pad1: u8,
  offmask: be16,
  off: u16,
  offoff: u16,
  hoff: u16,
  hmask: be32,
  mask: be32,
  val: be32,
  keyOff: i32,
  keyOffmask: i32,
});
/** struct tc_mirred */
const mirredParameters = struct({
  index: u32,
  capab: u32,
  action: i32,
  refcnt: i32,
  bindcnt: i32,
  eaction: i32,
  ifindex: u32,
});
const actions = attrList(
  variant(
    { kind: TCA_ACT_KIND, data: TCA_ACT_OPTIONS },
    () => ({ mirred: { parameters: [TCA_MIRRED_PARMS, mirredParameters] } }),
  ),
);
/** What a u32 filter holds. */
export const u32Options = attrs(() => ({
  classId: [TCA_U32_CLASSID, u32],
  actions: [TCA_U32_ACT, actions],
  // Bytes: the kernel reports as many keys as there are, and filters of others may have none or several.
  selector: [TCA_U32_SEL, bytes],
}));

const PRIORITY = 1;
/** Priority and protocol, the latter in network order. */
const PRIORITY_AND_PROTOCOL = PRIORITY << 16 | (ETH_P_ALL << 8);
/** Where the classifier would put a packet if it went on: `1:1`, what the reference says. */
const CLASS_ID = 0x1_0001;

/** Redirects everything that comes in over link `from` to link `to`, which sends it on. @throws {NetlinkError} */
export function addRedirect(nl: Netlink, from: number, to: number): void {
  const purpose = () => `redirect packets of link ${from} to link ${to}`;
  const value = {
    index: from,
    parent: INGRESS_HANDLE,
    info: PRIORITY_AND_PROTOCOL,
    kind: "u32",
    options: writeRedirect(to),
  };
  withRequestPurpose(purpose, () => execute(nl, NEW, value, NLM_F_CREATE | NLM_F_EXCL));
}

/** The content of the options of a u32 filter that redirects everything to link `to`. */
function writeRedirect(to: number): Uint8Array {
  const selectorWriter = new Writer();
  u32Selector.write(selectorWriter, { flags: TC_U32_TERMINAL, nkeys: 1 });
  const w = new Writer();
  u32Options.write(w, {
    classId: CLASS_ID,
    actions: [{
      kind: "mirred",
      parameters: { action: TC_ACT_STOLEN, eaction: TCA_EGRESS_REDIR, ifindex: to },
    }],
    selector: selectorWriter.written(),
  });
  return w.written();
}

/** The links to which everything that comes in over link `from` is redirected; usually one or none. @throws {NetlinkError} */
export function listRedirects(nl: Netlink, from: number): number[] {
  const value = { index: from, parent: INGRESS_HANDLE };
  return withRequestPurpose(() => `list filters of link ${from}`, () => dump(nl, GET, value)).flatMap(redirectTargets);
}

function redirectTargets({ kind, options }: Filter): number[] {
  if (kind !== "u32" || !options) return [];
  const { actions = [], selector: rawSelector } = u32Options.read(new Reader(options));
  if (!rawSelector || !matchesAll(rawSelector)) return [];
  return actions.flatMap((action) =>
    action.kind === "mirred" && action.parameters?.eaction === TCA_EGRESS_REDIR ? [action.parameters.ifindex] : []
  );
}

function matchesAll(rawSelector: Uint8Array): boolean {
  const KEY_BYTES = 16;
  const selectorBytes = u32Selector.size;
  if (rawSelector.length < selectorBytes - KEY_BYTES) return false;
  if (rawSelector[2] === 0) return true;
  return rawSelector[2] === 1 && rawSelector.length >= selectorBytes &&
    u32Selector.read(new Reader(rawSelector)).mask === 0;
}
