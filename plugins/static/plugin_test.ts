/** Answers of its own, and the same requests to the reference plugin; neither keeps state. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { newSandbox, type Sandbox, sandboxTest } from "../../testing/sandbox.ts";
import staticIpam from "./plugin.ts";

const REFERENCE = "/usr/lib/cni/static";
const peerTest = test.skipIf(!existsSync(REFERENCE));
/** Newest version that Debian's reference plugin speaks. */
const cniVersion = "1.0.0";

type Json = Readonly<Record<string, unknown>>;
/** Both plugins' view of a request; `args` is CNI_ARGS. */
interface Call {
  readonly config: Json;
  readonly args?: string;
}

function own({ call }: Sandbox, verb: "ADD" | "CHECK", { config, args = "" }: Call): unknown {
  return call(staticIpam, verb, { cniVersion, ...config }, { env: { CNI_ARGS: args } });
}

/** What either answers to an ADD, or "refused". */
function answers(request: Call): [ours: unknown, theirs: unknown] {
  using sandbox = newSandbox([]);
  const attempt = (call: () => unknown) => {
    try {
      return call();
    } catch {
      return "refused";
    }
  };
  const { config, args = "" } = request;
  const { exitCode, stdout } = Bun.spawnSync([REFERENCE], {
    env: {
      CNI_COMMAND: "ADD",
      CNI_CONTAINERID: "c1",
      CNI_IFNAME: "eth0",
      CNI_NETNS: sandbox.container.path,
      CNI_ARGS: args,
      CNI_PATH: "/usr/lib/cni",
    },
    stdin: new TextEncoder().encode(JSON.stringify({ cniVersion, name: "test", type: "static", ...config })),
  });
  if (exitCode !== 0) return [attempt(() => own(sandbox, "ADD", request)), "refused"];
  const theirs = JSON.parse(`${stdout}`);
  delete theirs.cniVersion;
  // Later releases of it leave an empty one out, too.
  if (Object.keys(theirs.dns ?? {}).length === 0) delete theirs.dns;
  return [attempt(() => own(sandbox, "ADD", request)), theirs];
}

const DUAL = {
  addresses: [{ address: "10.10.0.1/24", gateway: "10.10.0.254" }, { address: "3ffe:ffff:0:01ff::1/64" }],
  routes: [
    { dst: "0.0.0.0/0" },
    { dst: "192.168.0.9/16", gw: "10.10.5.1" },
    { dst: "192.168.0.9/16", gw: "10.10.5.2" },
    { dst: "3ffe:ffff:0:01ff::1/64", gw: "3ffe:ffff:0::1" },
  ],
  dns: { nameservers: ["8.8.8.8"], domain: "example.com", search: ["example.com"], options: ["ndots:2"] },
};
const ASKED = "IP=10.10.0.3/24, 11.11.0.3/24;GATEWAY=11.11.0.254";

const ANSWERED: Readonly<Record<string, Call>> = {
  "addresses, routes and resolver settings": { config: { ipam: DUAL } },
  "no address at all": { config: { ipam: {} } },
  "a gateway outside of the subnet": {
    config: { ipam: { addresses: [{ address: "10.0.0.2/24", gateway: "9.9.9.9" }] } },
  },
  "addresses of CNI_ARGS behind those of the configuration": { config: { ipam: DUAL }, args: ASKED },
  "several gateways in one subnet": {
    config: { ipam: {} },
    args: "IP=10.10.0.3/24;GATEWAY=10.10.0.1,10.10.0.2,10.11.0.1",
  },
  "unknown keys of CNI_ARGS, if they may be": { config: { ipam: DUAL }, args: "IgnoreUnknown=1;K8S_POD_NAME=x;IP=" },
  "ips of args.cni instead, without gateways": {
    config: { ipam: DUAL, args: { cni: { ips: ["10.10.0.2/24", "fd00::2/64"] } } },
    args: ASKED,
  },
  "ips of runtimeConfig before all others": {
    config: {
      ipam: DUAL,
      RuntimeConfig: { ips: ["10.10.0.9/24"] },
      args: { cni: { ips: ["10.10.0.2/24", "fd00::2/64"] } },
    },
    args: ASKED,
  },
  "empty lists of ips": { config: { ipam: DUAL, runtimeConfig: { ips: [] }, args: { cni: { ips: [] } } } },
};
for (const [name, request] of Object.entries(ANSWERED)) {
  peerTest(`static answers as the reference plugin does: ${name}`, () => {
    const [ours, theirs] = answers(request);
    expect(ours).toEqual(theirs);
    expect(theirs).not.toBe("refused");
  });
}

const REFUSED: readonly Call[] = [
  { config: {} },
  { config: {}, args: ASKED },
  { config: { runtimeConfig: { ips: ["10.0.0.1/8"] } } },
  { config: { ipam: { addresses: [{ address: "10.0.0.1" }] } } },
  { config: { ipam: { addresses: [{ gateway: "10.0.0.1" }] } } },
  { config: { ipam: { addresses: [{ address: "10.0.0.1/8", gateway: "x" }] } } },
  { config: { ipam: { routes: [{ dst: "10.0.0.1" }] } } },
  { config: { ipam: DUAL }, args: "IP=10.0.0.1" },
  { config: { ipam: DUAL }, args: "IP=10.0.0.1/8;GATEWAY=10.0.0.1/8" },
  { config: { ipam: DUAL }, args: "FOO=bar" },
  { config: { ipam: DUAL, args: { cni: { ips: ["10.0.0.1"] } } } },
  { config: { ipam: DUAL, runtimeConfig: { ips: ["10.0.0.1"] } } },
  { config: { ipam: DUAL, runtimeConfig: { ips: ["10.0.0.1/8"] } }, args: "IP=10.0.0.1" },
  { config: { ipam: { addresses: [{ address: "10.0.0.1/8" }, { address: "11.0.0.1/8" }] }, cniVersion: "0.2.0" } },
  { config: { ipam: {}, cniVersion: "0.2.0" } },
];
for (const request of REFUSED) {
  const name = JSON.stringify(request).replace(JSON.stringify(DUAL), "…");
  peerTest(`static refuses as the reference plugin does: ${name}`, () => {
    expect(answers(request)).toEqual(["refused", "refused"]);
  });
}

sandboxTest("static hands all of a route on", [], (sandbox) => {
  const routes = [{ dst: "10.9.0.0/16", gw: "10.0.0.1", mtu: 1400, advmss: 1300, priority: 5, table: 7, scope: 0 }];
  expect(own(sandbox, "ADD", { config: { ipam: { routes } } })).toEqual({ routes });
});

sandboxTest("static gives GATEWAY of CNI_ARGS to configured addresses as well, each in its subnet", [], (sandbox) => {
  const addresses = [{ address: "10.10.0.1/24" }, { address: "10.11.0.1/24", gateway: "10.11.0.9" }, {
    address: "fd00::1/64",
  }];
  const args = "IP=10.12.0.1/24;GATEWAY=10.10.0.254,10.11.0.254,fd00::ff";
  expect(own(sandbox, "ADD", { config: { ipam: { addresses } }, args })).toMatchObject({
    ips: [
      { address: "10.10.0.1/24", gateway: "10.10.0.254" },
      { address: "10.11.0.1/24", gateway: "10.11.0.254" },
      { address: "fd00::1/64", gateway: "fd00::ff" },
      { address: "10.12.0.1/24" },
    ],
  });
});

sandboxTest(
  "static CHECK names an address that the container did not get, and a gateway that is another",
  [],
  (sandbox) => {
    const config = { ipam: DUAL };
    const prevResult = own(sandbox, "ADD", { config }) as { ips: object[] };
    const check = (ips: readonly object[]) =>
      own(sandbox, "CHECK", { config: { ...config, prevResult: { cniVersion, ips } } });
    check(prevResult.ips);
    // What others added is theirs.
    check([{ address: "10.9.9.9/24" }, ...prevResult.ips.toReversed()]);
    const [four, six] = prevResult.ips;
    expect(() => check([four!])).toThrow("3ffe:ffff:0:1ff::1/64 as configured: it lacks the address");
    expect(() => check([six!, { ...four, gateway: "10.10.0.253" }])).toThrow(
      "10.10.0.1/24 as configured: its gateway is 10.10.0.253, expected 10.10.0.254",
    );
    expect(() => check([six!, { address: "10.10.0.1/24" }])).toThrow("its gateway is missing, expected 10.10.0.254");
    expect(() => own(sandbox, "CHECK", { config })).toThrow("prevResult is missing");
  },
);

sandboxTest("static DEL succeeds whatever the configuration holds; nothing opens the namespace", [], ({ call }) => {
  for (const ipam of [DUAL, undefined, { type: "static", addresses: 5 }]) {
    call(staticIpam, "DEL", { ipam }, { netns: null, env: { CNI_ARGS: "IP=nonsense" } });
  }
  call(staticIpam, "ADD", { ipam: DUAL }, { netns: "/nonexistent" });
});

sandboxTest("static is served as the IPAM plugin it is: GC and STATUS end with it", [staticIpam], ({ call }) => {
  const ipam = { type: "static", addresses: [{ address: "10.0.0.2/24" }] };
  call(staticIpam, "GC", { ipam, "cni.dev/valid-attachments": [] });
  call(staticIpam, "STATUS", { ipam });
  expect(() => call(staticIpam, "STATUS", { ipam: { ...ipam, routes: [{ dst: "::/0", gw: "10.0.0.1" }] } })).toThrow(
    "ipam.routes[0] must be a route with destination and gateway of one family",
  );
  const addresses = [{ address: "10.0.0.2/24" }, { address: "fd00::2/64", gateway: "10.0.0.1" }];
  expect(() => call(staticIpam, "STATUS", { ipam: { ...ipam, addresses } })).toThrow(
    "ipam.addresses[1] must be an address with a gateway of its own family",
  );
});
