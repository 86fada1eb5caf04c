/** Many answers at once, by frames of another machine. */
import { expect, test } from "bun:test";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { netnsRecordOf } from "../../../ffi/netns/record.ts";
import { openPacketSocket } from "../../../ffi/packet/packet_socket.ts";
import { BROADCAST_MAC, encodeUdpFrame } from "../../../ffi/packet/udp_frame.ts";
import * as link from "../../../ffi/route/link.ts";
import { type Ip, ipBytes } from "../../../ffi/address.ts";
import { runIp } from "../../../testing/netns.ts";
import { openExchange } from "./exchange.ts";
import { receiveForLease, wakeLease } from "./lease.ts";
import { closeExchange, type Lease, type LeaseContext, newLease } from "./lease_state.ts";
import { encodeRequest, type MessageType } from "./message.ts";
import { OPTION } from "./options.ts";
import { DEFAULT_TIMING } from "./serve.ts";
import type { LeaseTerms } from "./terms.ts";

const SERVER = "10.7.0.1" as Ip;
const ADDRESS = "10.7.0.10" as Ip;

interface Scene extends Disposable {
  readonly lease: Lease;
  readonly context: LeaseContext;
  readonly log: string[];
  /** How the ADD ended. */
  readonly errors: (Error | undefined)[];
  /** Sends the same answer to the lease many times. */
  flood(type: MessageType): void;
}

const terms = (serverMac: LeaseTerms["serverMac"]): LeaseTerms => ({
  address: ADDRESS,
  cidr: "10.7.0.10/24" as LeaseTerms["cidr"] & string,
  routes: [],
  dns: {},
  ntpServers: [],
  serverId: SERVER,
  serverMac,
  duration: { renewMs: 10_000, rebindMs: 20_000, expiryMs: 30_000 },
});

/** A lease that is renewed, of a server with the other end of a veth pair. */
function newScene(store: Partial<LeaseContext["store"]> = {}): Scene {
  using resources = new DisposableStack();
  const [host, container, machine] = [createNetns(), createNetns(), createNetns()].map((netns) =>
    resources.use(netns)
  ) as [Netns, Netns, Netns];
  runIp(container, `link add eth0 up type veth peer name eth0 netns ${machine.path}`);
  runIp(machine, "link set eth0 up");
  const { index, mac } = link.get(machine.route, "eth0");
  const settings = {
    network: "lan",
    containerId: "c1",
    ifname: "eth0",
    netns: container.path,
    netnsRecord: netnsRecordOf(container),
    clientId: "0063",
    provided: [],
    requested: [1],
    priority: 0,
  };
  const lease = newLease(settings, 0);
  const { exchange, device } = openExchange(host, settings, "", undefined);
  resources.defer(() => closeExchange(lease));
  const state = { state: "renewing", exchange: { ...exchange, openedAt: 0 }, device, terms: terms(mac!) } as const;
  Object.assign(lease, state);
  const [log, errors]: [string[], (Error | undefined)[]] = [[], []];
  const context: LeaseContext = {
    host,
    hostPrefix: "",
    broadcast: false,
    timing: DEFAULT_TIMING,
    store: { list: () => [], write() {}, remove() {}, ...store },
    now: () => 1000,
    log: (message) => log.push(message),
    countMessage() {},
    isAwaited: () => lease.state !== "renewing",
    settle: (_, error) => errors.push(error),
    forget() {},
  };
  const owned = resources.move();
  return {
    lease,
    context,
    log,
    errors,
    flood(type) {
      const answer = encodeRequest({
        type,
        xid: exchange.xid,
        secs: 0,
        broadcast: false,
        chaddr: device.mac,
        options: new Map([[OPTION.serverId, ipBytes(SERVER)]]),
      });
      answer[0] = 2;
      answer.set(ipBytes(ADDRESS), 16);
      using socket = machine.run(() => openPacketSocket(index));
      for (let i = 0; i < 100; i++) {
        socket.send(encodeUdpFrame({
          source: { mac: mac!, ip: SERVER, port: 67 },
          destination: { mac: BROADCAST_MAC, ip: "255.255.255.255" as Ip, port: 68 },
          payload: answer,
        }));
      }
    },
    [Symbol.dispose]: () => owned.dispose(),
  };
}

test("a lease reads some answers, then others get their turn", () => {
  using scene = newScene();
  const { lease, context } = scene;
  // Nobody waits for an offer.
  scene.flood("offer");
  receiveForLease(lease, context);
  expect(lease.exchange!.socket.receive()).toBeDefined();
});

test("answers without a subnet mask are one line of the log, and the lease stays", () => {
  using scene = newScene();
  const { lease, context, log } = scene;
  scene.flood("ack");
  receiveForLease(lease, context);
  expect(log).toEqual(["c1/lan/eth0: DHCP option Subnet Mask not found in DHCPACK"]);
  expect([lease.state, lease.terms!.address]).toEqual(["renewing", ADDRESS]);
});

test("an ADD whose lease cannot be recorded in the end fails at once", () => {
  const full = new Error("No space left on device");
  using scene = newScene({
    write() {
      throw full;
    },
  });
  const { lease, context, errors } = scene;
  Object.assign(lease, { state: "probing", sends: 2 });
  wakeLease(lease, context);
  expect(errors).toEqual([full]);
});
