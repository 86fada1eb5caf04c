import { type Caller, pluginCommand, type RunProgram, type Verb } from "../harness/invocation.ts";
import { bridgePlugin, type Container, hostLocal, newChain, newContainer } from "../harness/networks.ts";
import { resetNode } from "../harness/node.ts";
import { containerState, snapshotNode, withoutVolatile } from "../harness/node_state.ts";
import { type ProcessResult, requireSuccess, runLimited, runShell } from "../harness/process.ts";

const IPAM = hostLocal({ subnet: "10.9.0.0/29" }, { subnet: "fd00:9::/125", rangeEnd: "fd00:9::6" });
export const FAULTS_NETWORK = newChain("faults", bridgePlugin("br0", IPAM));

/** A container that was there before and must not change. */
export const RESIDENT_CONTAINER = newContainer("resident", 8000);
export const TEST_CONTAINER = newContainer("subject", 8001);
const NAMESPACES = [RESIDENT_CONTAINER.id, TEST_CONTAINER.id];

/** A command, the state that it finds, and the state that it is to leave. */
export interface Scenario {
  readonly verb: Verb;
  readonly container: Container;
  prepare(caller: Caller): void;
  snapshot(): readonly string[];
  /** The state after an ADD and a DEL that nothing interrupted. */
  snapshotAfterDel(): readonly string[];
  readonly hasResident: boolean;
}

/** A firewall that drops what is forwarded, so that containers need accept rules in it. */
const FOREIGN_FIREWALL = ["ip", "ip6", "inet"].map((family) =>
  `nft 'table ${family} foreign { chain forward { type filter hook forward priority 0; policy drop; }; }'`
).join("\n");

/** A command on a node where everything that containers share is there. */
const withResident = (verb: Verb, container = TEST_CONTAINER): Scenario => ({
  verb,
  container,
  hasResident: true,
  prepare(caller) {
    resetNode(NAMESPACES);
    runShell(FOREIGN_FIREWALL);
    mustSucceed(caller, "add", RESIDENT_CONTAINER);
    // These bring what containers share into its final state: the MTU of the bridge, the last reserved address.
    for (const verb of ["add", "del"] as const) mustSucceed(caller, verb, TEST_CONTAINER);
  },
  snapshot: () => snapshotNode(NAMESPACES),
  snapshotAfterDel: () => snapshotNode(NAMESPACES),
});

export const SCENARIOS = {
  "first-add": {
    verb: "add",
    container: TEST_CONTAINER,
    hasResident: false,
    prepare: () => resetNode(NAMESPACES),
    snapshot: () => containerState(snapshotNode(NAMESPACES)),
    snapshotAfterDel: () => withoutVolatile(snapshotNode(NAMESPACES)),
  },
  add: withResident("add"),
  del: withResident("del"),
  gc: withResident("gc", RESIDENT_CONTAINER),
} as const satisfies Record<string, Scenario>;

export function callChain(caller: Caller, verb: Verb, container: Container, run?: RunProgram): ProcessResult {
  return caller.call(FAULTS_NETWORK, verb, verb === "gc" ? { valid: [container.id] } : { container }, run);
}

export const mustSucceed = (caller: Caller, verb: Verb, container: Container): ProcessResult =>
  requireSuccess({ argv: [verb, container.id] }, callChain(caller, verb, container));

export function attachAndDetach(caller: Caller): void {
  for (const verb of ["add", "check", "del"] as const) mustSucceed(caller, verb, TEST_CONTAINER);
}

/** No address is lost or given twice: all that are free can be reserved. @throws {Error} otherwise */
export function requireAllAddresses({ hasResident }: Scenario): void {
  const call = (verb: Verb, id: string) => {
    const plugin = { type: IPAM.type, ipam: IPAM };
    const command = pluginCommand(FAULTS_NETWORK, plugin, verb, { container: { ...TEST_CONTAINER, id } });
    return requireSuccess(command, runLimited(command)).stdout;
  };
  // Of each family a /29 without its ends and the bridge, and the address of the resident.
  const ids = Array.from({ length: hasResident ? 4 : 5 }, (_, index) => `filler${index}`);
  const addresses = ids.flatMap((id) => JSON.parse(call("add", id)).ips.map((ip: { address: string }) => ip.address));
  for (const id of ids) call("del", id);
  if (new Set(addresses).size !== 2 * ids.length) throw new Error(`Given were ${addresses.join(" ")}`);
}
