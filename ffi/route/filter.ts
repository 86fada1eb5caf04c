/**
 * Filters that redirect a link's incoming packets. They are u32 filters that always match, since many kernels lack
 * `matchall`.
 *
 * @see linux/pkt_cls.h, linux/tc_act/tc_mirred.h
 * @module
 */
import { attrList, attrs, variant } from "../netlink/attrs.ts";
import { be16, be32, bytes, cstr, i32, Reader, struct, u16, u32, u8, Writer } from "../netlink/codec.ts";
import { message, type MessageOut, NLM_F_CREATE, NLM_F_EXCL } from "../netlink/message.ts";
import { dump, execute, type Netlink } from "../netlink/socket.ts";
import { withPurpose } from "../sys/error.ts";
import { rtnetlinkOperations } from "./operations.ts";
import { INGRESS_HANDLE, tcmsg } from "./qdisc.ts";
import * as uapi from "./uapi.ts";

export const filterMessage = message("filter", tcmsg, () => ({
  kind: [uapi.TCA_KIND, cstr],
  options: [uapi.TCA_OPTIONS, bytes],
}));
export type Filter = MessageOut<typeof filterMessage>;
const FILTER = /* @__PURE__ */ rtnetlinkOperations("TFILTER", uapi.RTM_NEWTFILTER, filterMessage);

// struct tc_u32_sel with one struct tc_u32_key
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
const tcMirred = struct({ index: u32, capab: u32, action: i32, refcnt: i32, bindcnt: i32, eaction: i32, ifindex: u32 });
const actions = attrList(
  variant(
    { kind: uapi.TCA_ACT_KIND, data: uapi.TCA_ACT_OPTIONS },
    () => ({ mirred: { parameters: [uapi.TCA_MIRRED_PARMS, tcMirred] } }),
  ),
);
export const u32Options = attrs(() => ({
  classId: [uapi.TCA_U32_CLASSID, u32],
  actions: [uapi.TCA_U32_ACT, actions],
  // Others' filters may have no key or several.
  selector: [uapi.TCA_U32_SEL, bytes],
}));

const PRIORITY = 1;
// The lower half: the protocol in network order.
const PRIORITY_AND_PROTOCOL = PRIORITY << 16 | (uapi.ETH_P_ALL << 8);
// `1:1`, as in the reference plugin.
const CLASS_ID = 0x1_0001;

export function addRedirect(nl: Netlink, from: number, to: number): void {
  const options = writeRedirect(to);
  const value = { index: from, parent: INGRESS_HANDLE, info: PRIORITY_AND_PROTOCOL, kind: "u32", options };
  withPurpose(
    `redirect packets of link ${from} to link ${to}`,
    () => execute(nl, FILTER.NEW, value, NLM_F_CREATE | NLM_F_EXCL),
  );
}

function writeRedirect(to: number): Uint8Array {
  const selectorWriter = new Writer();
  u32Selector.write(selectorWriter, { flags: uapi.TC_U32_TERMINAL, nkeys: 1 });
  const parameters = { action: uapi.TC_ACT_STOLEN, eaction: uapi.TCA_EGRESS_REDIR, ifindex: to };
  const w = new Writer();
  u32Options.write(w, {
    classId: CLASS_ID,
    actions: [{ kind: "mirred", parameters }],
    selector: selectorWriter.written(),
  });
  return w.written();
}

export function listRedirects(nl: Netlink, from: number): number[] {
  const value = { index: from, parent: INGRESS_HANDLE };
  return withPurpose(`list filters of link ${from}`, () => dump(nl, FILTER.GET, value)).flatMap(redirectTargets);
}

function redirectTargets({ kind, options }: Filter): number[] {
  if (kind !== "u32" || !options) return [];
  const { actions = [], selector: rawSelector } = u32Options.read(new Reader(options));
  if (!rawSelector || !matchesAll(rawSelector)) return [];
  return actions.flatMap((action) =>
    action.kind === "mirred" && action.parameters?.eaction === uapi.TCA_EGRESS_REDIR ? [action.parameters.ifindex] : []
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
