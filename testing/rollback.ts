/**
 * Whether a plugin undoes what it did: every message that it sends to the kernel fails in turn, and so does every answer.
 *
 * @module
 */
import { expect } from "bun:test";
import { watchedNetns } from "./netlink.ts";
import * as address from "../ffi/route/address.ts";
import * as link from "../ffi/route/link.ts";
import * as rule from "../ffi/route/rule.ts";
import * as whole from "../ffi/route/raw_route.ts";
import { type Netns, openNetns } from "../ffi/netns/netns.ts";
import { EIO } from "../ffi/sys/errno.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { type Namespaces, newNamespaces, runInNetns } from "./netns.ts";
import { parseCidr, parseIp } from "../ffi/address.ts";
import type { IpConfig } from "../spec/result.ts";
import { anything } from "../spec/schema.ts";
import type { ProgramOutput } from "../plugins/lib/protocol/response.ts";
import { plugin } from "../plugins/lib/protocol/plugin.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { newHostContext, newRequest, respond } from "./plugin_call.ts";

/** A plugin and its configuration, tried on a new host and container each time. */
export interface RollbackCase {
  readonly plugin: AnyPlugin;
  /** Whether the plugin makes rules too. */
  readonly hasRules?: true;
  /** Makes what has to be there, which may not change by itself afterwards, and gives the configuration. */
  prepare(namespaces: Namespaces): object;
}

/** An IPAM plugin that gives an address of each family, each with its gateway, or those of one family. */
export function dualStackFixedIpam(...families: readonly (4 | 6)[]): { readonly ipam: object } {
  const ips = { 4: ["10.5.0.2/24", "10.5.0.1"], 6: ["fd05::2/64", "fd05::1"] };
  return {
    ipam: { type: "given", ips: (families.length > 0 ? families : [4, 6] as const).map((family) => ips[family]) },
  };
}

/** The failing part: a message is not sent, or its answer is lost. */
type FailurePoint = "send" | "receive";

/** Counts down to the call that fails. */
interface FaultTrigger {
  readonly where: FailurePoint;
  remaining: number;
}

/**
 * Calls ADD as often as it sends messages, of which another one fails each time: nothing but what was there before may be left.
 *
 * @returns how many fail
 */
export function expectRollback(rollbackCase: RollbackCase): number {
  return failEach("ADD", "send", rollbackCase, ({ stateNow, before, ipamCalls, output }) => {
    expect([output, stateNow()]).toEqual([output, before]);
    const count = (command: string) => ipamCalls.filter((call) => call === command).length;
    expect([output, count("DEL")]).toEqual([output, count("ADD")]);
  });
}

/** The same with answers that are lost, so that nobody knows what was done: the DEL that follows takes it away. @returns how many are lost */
export function expectCleanDel(rollbackCase: RollbackCase): number {
  return failEach("ADD", "receive", rollbackCase, expectRemoval);
}

/** The same with the messages of a DEL: another one goes on where it stopped. @returns how many fail */
export function expectSecondDel(rollbackCase: RollbackCase): number {
  return failEach("DEL", "send", rollbackCase, expectRemoval);
}

function expectRemoval({ stateNow, before, call, output }: FaultAftermath): void {
  expect([output, call("DEL")]).toEqual([output, { exitCode: 0, stdout: "" }]);
  expect([output, stateNow()]).toEqual([output, before]);
}

/** The state after a command that failed. */
interface FaultAftermath {
  readonly before: readonly string[];
  stateNow(): readonly string[];
  readonly ipamCalls: readonly string[];
  readonly output: string;
  call(command: string): Pick<ProgramOutput, "exitCode" | "stdout">;
}

function failEach(
  command: "ADD" | "DEL",
  where: FailurePoint,
  rollbackCase: RollbackCase,
  check: (aftermath: FaultAftermath) => void,
): number {
  for (let at = 1;; at++) {
    using namespaces = newNamespaces();
    const fuse: FaultTrigger = { where, remaining: Number.POSITIVE_INFINITY };
    const asked: string[] = [];
    const config = rollbackCase.prepare(namespaces);
    const before = stateOf(namespaces, rollbackCase.hasRules);
    const call = callerOf(rollbackCase.plugin, config, namespaces, fuse, asked);
    if (command === "DEL") expect(call("ADD")).toMatchObject({ exitCode: 0 });
    fuse.remaining = at;
    const { exitCode, stdout: output } = call(command);
    const isSpent = fuse.remaining <= 0;
    fuse.remaining = Number.POSITIVE_INFINITY;
    if (exitCode !== 0) {
      check({
        before,
        ipamCalls: asked,
        output,
        call,
        stateNow: () => stateOf(namespaces, rollbackCase.hasRules),
      });
    }
    if (isSpent) continue;
    expect([output, exitCode]).toEqual([output, 0]);
    return at - 1;
  }
}

function callerOf(
  tested: AnyPlugin,
  config: object,
  { host, container }: Namespaces,
  fuse: FaultTrigger,
  asked: string[],
): FaultAftermath["call"] {
  const context = newHostContext({
    host: failingNetns(host, fuse),
    openNetns: (path) => failingNetns(openNetns(path), fuse),
    findPlugin: () => isGiven(asked),
  });
  return (command) => {
    const request = newRequest(tested.name, command, config, { netns: container });
    const { exitCode, stdout } = respond(tested, request, context);
    return { exitCode, stdout };
  };
}

/** The IPAM plugin, which notes what it is asked. */
const isGiven = (commands: string[]) =>
  plugin({
    name: "given",
    about: "Gives the addresses in its configuration",
    config: anything,
    add({ config }) {
      commands.push("ADD");
      const ip = (address: string, gateway: string) =>
        ({ address: parseCidr(address), gateway: parseIp(gateway) }) satisfies IpConfig;
      return { ips: (config as { ipam: { ips: [string, string][] } }).ipam.ips.map((pair) => ip(...pair)) };
    },
    del: () => void commands.push("DEL"),
    check: () => {},
  });

/** A namespace whose sockets fail when the fuse blows. */
function failingNetns(netns: Netns, fuse: FaultTrigger): Netns {
  const blow = (where: FailurePoint) => {
    if (where === fuse.where && --fuse.remaining === 0) {
      throw new SystemError(where === "send" ? "sendto" : "recvfrom", EIO);
    }
  };
  return watchedNetns(netns, { onSend: () => blow("send"), onReceive: () => blow("receive") });
}

/**
 * Links, addresses, routes and rules, without what is made once for all containers: the ruleset's chains, the kernel's rule for VRFs. Asked
 * by ourselves, since programs take seconds to start in a virtual machine.
 */
function stateOf({ host, container }: Namespaces, hasRules = false): string[] {
  const all = [host, container].flatMap(({ route: nl }) => [
    ...link.list(nl),
    ...address.list(nl),
    ...whole.list(nl),
    ...rule.list(nl).filter(({ table }) => table !== 0),
  ]);
  return [
    ...all.map((element) => Bun.inspect(element, { depth: 9 })),
    ...hasRules ? runInNetns(host, "nft", "list", "ruleset").match(/.*c1 eth0.*/g) ?? [] : [],
  ];
}
