/**
 * A network with many names, and a container that asks for them without a pause.
 *
 * @module
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Cidr, parseCidr, parseIp } from "../ffi/address.ts";
import tested from "../plugins/dnsname/plugin.ts";
import { newRecord, recordFileName } from "../plugins/dnsname/record.ts";
import { newBridgeNetwork } from "./bridge_network.ts";
import { askWithoutPause } from "./dns_questions.ts";
import { newNameSite, startNameServer } from "./dnsname.ts";

export interface NameLoad {
  /** How many names other containers have. */
  readonly names: number;
  readonly questions: number;
  /** ADDs and DELs of one more container. */
  readonly attachments: number;
}

export interface NameLoadResult {
  /** From the start of the server to its first answer. */
  readonly startMs: number;
  readonly addMs: readonly number[];
  readonly answered: number;
  readonly seconds: number;
}

const WINDOW = 64;

/** Attaches, asks, and detaches again. */
export async function runNameLoad({ names, questions, attachments }: NameLoad): Promise<NameLoadResult> {
  using resources = new DisposableStack();
  const network = newBridgeNetwork(resources);
  const { host } = network;
  using site = newNameSite();
  mkdirSync(site.paths.state);
  const servers = ["10.88.0.1", "fd88::1"].map((address) => ({ address: parseIp(address), device: "br0" }));
  for (let i = 0; i < names; i++) {
    const owner = { network: "web", containerId: `id${i}`, ifname: "eth0" };
    const addresses = [parseCidr(`10.88.${i >> 8 | 64}.${i & 255}/16`)] as Cidr[];
    const record = newRecord(host, { owner, domain: "dns.test", names: [`name${i}`], addresses, servers });
    writeFileSync(join(site.paths.state, recordFileName(owner)), JSON.stringify(record));
  }
  const start = performance.now();
  resources.use(startNameServer(host, site.paths));
  const startMs = performance.now() - start;
  const container = network.container(2);
  const addMs = Array.from({ length: attachments }, () => {
    const before = performance.now();
    network.call(tested, "ADD", site.config, { container, containerId: "more" });
    const duration = performance.now() - before;
    network.call(tested, "DEL", site.config, { container, containerId: "more" });
    return duration;
  });
  network.call(tested, "ADD", site.config, { container, containerId: "more" });
  const asked = performance.now();
  const durations = await askWithoutPause(container.netns, {
    count: questions,
    window: WINDOW,
    names: Array.from({ length: names }, (_, i) => `name${i}.dns.test`),
  });
  return { startMs, addMs, answered: durations.length, seconds: (performance.now() - asked) / 1000 };
}
