import { expect, test } from "bun:test";
import { Reader } from "../netlink/codec.ts";
import { acknowledgement, recordedMessage, recordingSocket, valueOf } from "../../testing/netlink.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import * as filter from "./filter.ts";
import { ifb } from "./link_kinds.ts";
import * as link from "./link.ts";
import * as qdisc from "./qdisc.ts";

test("a redirection has tc(8)'s values", () => {
  const nl = recordingSocket(acknowledgement(1, 0));
  filter.addRedirect(nl, 1, 1);
  const ours = valueOf(filter.filterMessage, nl.sent[0]!);
  const theirs = valueOf(filter.filterMessage, recordedMessage("filter_add_redirect"));
  expect({ ...ours, options: undefined }).toEqual({ ...theirs, options: undefined });
  const options = filter.u32Options.read(new Reader(ours.options!));
  expect(options).toEqual(filter.u32Options.read(new Reader(theirs.options!)));
  expect(options).toMatchObject({ actions: [{ kind: "mirred", parameters: { ifindex: 1 } }] });
});

netnsTest("tc(8) shows a redirection, and only one of all packets is listed", ({ host }) => {
  for (const name of ["ifb8", "ifb9"]) link.add(host.route, { name, info: ifb({}) });
  const [from, to] = ["ifb8", "ifb9"].map((name) => link.get(host.route, name).index) as [number, number];
  expect(filter.listRedirects(host.route, from)).toEqual([]);
  expect(() => filter.addRedirect(host.route, from, to)).toThrow(
    `Cannot redirect packets of link ${from} to link ${to}: `,
  );
  qdisc.addIngress(host.route, from);
  expect(filter.listRedirects(host.route, from)).toEqual([]);
  const tc = (...args: string[]) => runInNetns(host, "tc", ...args);
  const other = (rest: string) =>
    tc(...`filter add dev ifb8 parent ffff: protocol all prio 2 u32 match u32 ${rest}`.split(" "));
  other("1 1 action mirred egress redirect dev ifb9");
  other("0 0 action mirred egress mirror dev ifb9");
  other("0 0 flowid 1:1");
  expect(filter.listRedirects(host.route, from)).toEqual([]);
  filter.addRedirect(host.route, from, to);
  expect(filter.listRedirects(host.route, from)).toEqual([to]);
  expect(JSON.parse(tc("-j", "filter", "show", "dev", "ifb8", "parent", "ffff:", "prio", "1")).at(-1)).toMatchObject({
    protocol: "all",
    kind: "u32",
    options: {
      match: { value: "0", mask: "0" },
      actions: [{ kind: "mirred", mirred_action: "redirect", direction: "egress", to_dev: "ifb9" }],
    },
  });
});
