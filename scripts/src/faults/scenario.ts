/** The network and the states of a node in which commands are tried. @module */
import { type Container, newContainer } from "../harness/container.ts";
import { type Caller, pluginCommand, type Verb } from "../harness/invocation.ts";
import { bridgePlugin, hostLocal, newChain } from "../harness/networks.ts";
import { resetNode } from "../harness/node.ts";
import { containerState, snapshotNode, withoutVolatile } from "../harness/node_state.ts";
import { type ProcessCommand, type ProcessResult, requireSuccess, runLimited, runShell } from "../harness/process.ts";

const IPAM = hostLocal({ subnet: "10.9.0.0/29" }, { subnet: "fd00:9::/125", rangeEnd: "fd00:9::6" });
export const FAULTS_NETWORK = newChain("faults", bridgePlugin("br0", IPAM));

/** How many addresses of each family are left when one container is there: of a /29, without its ends and the bridge. */
const FREE_ADDRESSES = 4;

/** What a command finds, and what it is to leave. */
export interface Scenario {
  readonly verb: Verb;
  /** Of GC, the one that stays. */
  readonly container: Container;
  /** Brings the node into this state from any other. */
  prepare(caller: Caller): void;
  /** What is there, without what may stay when the container is gone. */
  snapshot(): readonly string[];
  /** What there is after an ADD and a DEL that nothing interrupted. */
  snapshotAfterDel(): readonly string[];
  /** Whether another container lives on the node. */
  readonly hasResident: boolean;
  /** How many addresses of each family are not reserved. */
  readonly freeAddresses: number;
}

/** A container that was there before and must not change. */
export const RESIDENT_CONTAINER = newContainer("resident", 8000);
/** The container of the commands with faults. */
export const TEST_CONTAINER = newContainer("subject", 8001);

const NAMESPACES = [RESIDENT_CONTAINER.id, TEST_CONTAINER.id];

/** A firewall that drops what is forwarded, so that containers need accept rules in it. */
const FOREIGN_FIREWALL = ["ip", "ip6", "inet"].map((family) =>
  `nft 'table ${family} foreign { chain forward { type filter hook forward priority 0; policy drop; }; }'`
).join("\n");

/** A command on a node where everything that containers share is there. */
function withResident(verb: Verb, container = TEST_CONTAINER): Scenario {
  return {
    verb,
    container,
    hasResident: true,
    freeAddresses: FREE_ADDRESSES,
    prepare(caller) {
      resetNode(NAMESPACES);
      runShell(FOREIGN_FIREWALL);
      mustSucceed(caller, "add", RESIDENT_CONTAINER);
      // An ADD and a DEL bring what containers share into its final state: the MTU of the bridge, the last reserved address.
      mustSucceed(caller, "add", TEST_CONTAINER);
      mustSucceed(caller, "del", TEST_CONTAINER);
    },
    snapshot: () => snapshotNode(NAMESPACES),
    snapshotAfterDel: () => snapshotNode(NAMESPACES),
  };
}

/** By name. */
export const SCENARIOS = {
  "first-add": {
    verb: "add",
    container: TEST_CONTAINER,
    hasResident: false,
    freeAddresses: FREE_ADDRESSES + 1,
    prepare: () => resetNode(NAMESPACES),
    snapshot: () => containerState(snapshotNode(NAMESPACES)),
    snapshotAfterDel: () => withoutVolatile(snapshotNode(NAMESPACES)),
  },
  add: withResident("add"),
  del: withResident("del"),
  gc: withResident("gc", RESIDENT_CONTAINER),
} as const satisfies Record<string, Scenario>;

/** Carries out a command. @param traced is run by its own function */
export function callChain(
  caller: Caller,
  verb: Verb,
  container: Container,
  traced?: { readonly program: string; run(command: ProcessCommand): ProcessResult },
): ProcessResult {
  const input = verb === "gc" ? { valid: [container.id] } : { container };
  return caller.call(
    FAULTS_NETWORK,
    verb,
    input,
    (command) => traced?.program === command.program ? traced.run(command) : runLimited(command),
  );
}

/** Carries out a command without a fault. @throws {Error} with its output, if it fails */
export function mustSucceed(caller: Caller, verb: Verb, container: Container): ProcessResult {
  return requireSuccess({ argv: [verb, container.id] }, callChain(caller, verb, container));
}

/** Reserves addresses for a container without attaching it, or releases them. @throws {Error} if that fails */
export function reserveAddresses(verb: "add" | "del", id: string): readonly string[] {
  const plugin = { type: IPAM.type, ipam: IPAM };
  const command = pluginCommand(FAULTS_NETWORK, plugin, verb, { container: { ...TEST_CONTAINER, id } });
  const { stdout } = requireSuccess(command, runLimited(command));
  return verb === "del" ? [] : JSON.parse(stdout).ips.map(({ address }: { address: string }) => address);
}
