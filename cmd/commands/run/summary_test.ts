import { afterAll, expect } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newCliSandboxes } from "../../../testing/cli.ts";
import { netnsTest, runInNetns, runIp } from "../../../testing/netns.ts";
import { runInTerminal } from "../../../testing/terminal.ts";

const { root, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

const PLUGINS = [
  {
    type: "bridge",
    bridge: "br9",
    isGateway: true,
    ipam: {
      type: "static",
      addresses: [{ address: "10.9.0.5/24", gateway: "10.9.0.1" }, { address: "fd09::5/64", gateway: "fd09::1" }],
    },
  },
  { type: "portmap", capabilities: { portMappings: true } },
];

netnsTest("cni run add tells people on a terminal what was attached, and others nothing", ({ host, container }) => {
  const { run, command, conf } = bench(host);
  writeFileSync(
    join(conf, "web.conflist"),
    JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: PLUGINS }),
  );
  runIp(host, "link set lo up", "link add up0 type veth", "link set up0 up", "address add 192.0.2.7/24 dev up0");
  runIp(host, "route add default via 192.0.2.1");
  const ports = "-p 8080:80 -p 5353:53/udp -p 127.0.0.1:8443:443 -p [2001:db8::1]:22:22";
  const words = [...command(`add web ${container.path} --container-id c1 ${ports}`)];
  const { exitCode, text } = host.run(() => runInTerminal(words, { env: ["NO_COLOR=1"] }));
  const result = text.slice(0, text.lastIndexOf("}") + 1);
  expect([exitCode, JSON.parse(result).ips.length]).toEqual([0, 2]);
  expect(text.slice(result.length).trim().split("\n")).toEqual([
    "eth0 10.9.0.5/24, fd09::5/64 on network web, bridge br9",
    "http://192.0.2.7:8080 -> 10.9.0.5:80",
    "192.0.2.7:5353/udp -> 10.9.0.5:53",
    "https://127.0.0.1:8443 -> 10.9.0.5:443",
    "[2001:db8::1]:22/tcp -> [fd09::5]:22",
    expect.stringMatching(/^attached in [0-9]+ ms$/),
  ]);
  expect(run(`del web ${container.path} --container-id c1`).exitCode).toBe(0);
  runInNetns(host, "ip", "route", "del", "default");
  const withoutUplink = host.run(() => runInTerminal(words, { env: ["NO_COLOR=1"] })).text;
  expect(withoutUplink).toContain("\nhttp://10.9.0.1:8080 -> 10.9.0.5:80\n");
});

netnsTest(
  "cni run add succeeds if it cannot summarize, and lets no plugin steer the terminal",
  ({ host, container }) => {
    const { command, plugin, conf } = bench(host);
    plugin(
      "odd",
      `cat >/dev/null
     echo '{"cniVersion":"1.1.0","interfaces":[{"name":"e\\u001b[2J","sandbox":"/x"}]}'`,
    );
    const plugins = [{ type: "odd", capabilities: { portMappings: true } }];
    writeFileSync(join(conf, "odd.conflist"), JSON.stringify({ cniVersion: "1.1.0", name: "odd", plugins }));
    const add = (words: string) =>
      host.run(() => runInTerminal(command(`add odd ${container.path} ${words}`), { env: ["NO_COLOR=1"] }));
    expect(add("")).toEqual({ exitCode: 0, text: expect.stringContaining("\ne?[2J no address on network odd\n") });
    const strange = add('--ifname eth1 --cap-args {"portMappings":[{"hostPort":"x"}]}');
    expect([strange.exitCode, strange.text]).toEqual([0, expect.stringContaining("cni: Cannot summarize: ")]);
  },
);
