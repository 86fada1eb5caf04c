import { beforeAll, expect, test } from "bun:test";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseIp } from "../../ffi/address.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { checkLoopbackPorts } from "./checks/loopback_ports.ts";
import { checkPlugins } from "./checks/plugins.ts";
import { checkPorts } from "./checks/ports.ts";
import type { Finding } from "./finding.ts";
import { isBroken } from "./examine.ts";
import type { Subject } from "./subject.ts";

beforeAll(() => loadPlugins());

test("another program's portmap needs route_localnet, and no element of ours", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { c1, directory, shell } = doctorHost;
  const program = join(directory, "portmap");
  writeFileSync(program, "#!/bin/sh\n");
  chmodSync(program, 0o755);
  const check = (run: (subject: Subject) => Finding[]) =>
    doctorHost.withSubject((subject) =>
      run({ ...subject, runtime: { ...subject.runtime, pluginDirectories: [directory] } })
    );
  // Another build of this program.
  expect(check(checkLoopbackPorts)).toEqual([]);
  shell("nft delete element inet cni hostports4 '{ tcp . 8080 }'");
  expect(check(checkLoopbackPorts)).toEqual([{
    severity: "broken",
    what: `net.ipv4.conf.br9.route_localnet is 0: ${program} needs it for calls of 127.0.0.1 to ports of "eth0" of ` +
      c1.path,
    mend: "sysctl -w net.ipv4.conf.br9.route_localnet=1",
    repair: { kind: "sysctl", name: "net/ipv4/conf/br9/route_localnet", value: "1" },
  }]);
  shell("sysctl -qw net.ipv4.conf.br9.route_localnet=1");
  expect(check(checkLoopbackPorts)).toEqual([]);
  expect(check(checkPlugins)).toEqual([{
    severity: "warning",
    what: `programs in ${directory} are called for "portmap", not the built-in plugins`,
    advice: "to use the built-in plugins",
    mend: `cni install ${directory} --force`,
  }]);
  expect(check(checkPorts).filter(isBroken)).toEqual([]);
  expect(doctorHost.withSubject(checkPorts).filter(isBroken)).toHaveLength(1);
});

test("without snat, a port on 127.0.0.1 gets no answers", () => {
  using doctorHost = newDoctorHost();
  const check = (hostIP?: string) =>
    doctorHost.withSubject((subject) => {
      const [container] = subject.containers;
      const published = container!.publishedPorts!;
      const [mapping] = published.mappings;
      const mappings = [{ ...mapping!, ...hostIP !== undefined && { hostIP: parseIp(hostIP) } }];
      const publishedPorts = { ...published, masqueradesCallers: false, mappings };
      return checkLoopbackPorts({ ...subject, containers: [{ ...container!, publishedPorts }] });
    });
  expect(check("127.0.0.1")).toEqual([{
    severity: "broken",
    what: `host port 127.0.0.1:8080/tcp of "eth0" of ${doctorHost.c1.path} gets no answers: "snat" is false, so its ` +
      "calls keep a source that no container answers",
    advice: 'remove "snat": false from the configuration, then attach it anew, or let its engine restart it: ' +
      "its connections end, and its address may change",
    mend: expect.stringMatching(/^cni run del web /),
  }]);
  expect([check("192.0.2.1"), check()]).toEqual([[], []]);
});
