/** What others on the network do, and other kinds of links. */
import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { createNetns } from "../../../ffi/netns/netns.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { awaitReadable } from "../../../ffi/sys/poll.ts";
import { receiveAvailable, sendAvailable } from "../../../ffi/sys/stream_socket.ts";
import { SOCK_STREAM } from "../../../ffi/sys/uapi.ts";
import { connectTo } from "../../../ffi/sys/unix_socket.ts";
import { ENGINE_ENV, fullProgramLink } from "../../../testing/binary.ts";
import { type DhcpLan, dhcpLanTest, dnsmasqMessages } from "../../../testing/dhcp.ts";
import { findShownLink, shownAddresses } from "../../../testing/fixture_configs.ts";
import { kernelHasLinkKind, runShellInNetns, until } from "../../../testing/netns.ts";

const lanTest = (name: string, body: (lan: DhcpLan) => Promise<void>) => dhcpLanTest(name, body);

lanTest("answers that are damaged, or of a server that was not chosen, change nothing", async (lan) => {
  await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  const program = join(import.meta.dir, "../../../testing/rogue_dhcp_server.ts");
  const rogue = lan.lan.run(() =>
    Bun.spawn([process.execPath, program, process.env.FUZZ_SEED ?? "7"], { stdout: "pipe", stderr: "inherit" })
  );
  using _ = { [Symbol.dispose]: () => rogue.kill("SIGKILL") };
  const reader = rogue.stdout.getReader();
  await reader.read();
  for (let i = 0; i < 5; i++) {
    const result = lan.call("bridge", "ADD", lan.config);
    expect(result.ips).toMatchObject([{ address: "10.7.0.10/24", gateway: "10.7.0.1" }] as object[]);
    expect(new TextDecoder().decode((await reader.read()).value)).toContain("answered");
    lan.call("bridge", "DEL", lan.config);
  }
  lan.call("bridge", "STATUS", lan.config);
  expect(server.log()).not.toContain("10.7.0.66");
});

if (kernelHasLinkKind("macvlan")) {
  lanTest("an interface of macvlan gets a lease, and releases it by DEL or with its container", async (lan) => {
    const dnsmasq = await lan.startDnsmasq();
    await lan.startLeaseServer();
    runShellInNetns(lan.host, "ip link del br0");
    const config = { ...lan.config, master: "up0" };
    lan.call("macvlan", "ADD", config);
    const other = createNetns();
    lan.call("macvlan", "ADD", config, { containerId: "c2", netns: other });
    expect(shownAddresses(findShownLink(lan.container))).toEqual(["10.7.0.10"]);
    lan.call("macvlan", "DEL", config);
    await until(() => dnsmasqMessages(dnsmasq).includes("DHCPRELEASE 10.7.0.10"));
    // Nobody calls DEL.
    other[Symbol.dispose]();
    await until(() => dnsmasqMessages(dnsmasq).includes("DHCPRELEASE 10.7.0.11"));
  });
} else test.skip("an interface of macvlan gets a lease, and releases it # needs macvlan", () => {});

lanTest("an ADD that is killed ends its lease", async (lan) => {
  const server = await lan.startLeaseServer();
  const { pid } = await startAdd(lan, server.log);
  process.kill(pid, "SIGKILL");
  await until(() => server.log().includes("the ADD has ended"));
  const dnsmasq = await lan.startDnsmasq();
  lan.call("bridge", "DEL", lan.config);
  const result = lan.call("bridge", "ADD", lan.config);
  expect(result.ips).toMatchObject([{ address: "10.7.0.10/24" }] as object[]);
  // Nobody else asks: it would get another address.
  const addresses = dnsmasqMessages(dnsmasq).flatMap((message) => message.match(/10\.[\d.]+$/) ?? []);
  expect(new Set(addresses)).toEqual(new Set(["10.7.0.10"]));
});

lanTest("a DEL during the ADD of the same attachment ends both, and leaves nothing", async (lan) => {
  const server = await lan.startLeaseServer();
  const child = await startAdd(lan, server.log);
  lan.call("dhcp", "DEL", lan.config);
  expect(JSON.parse(await new Response(child.stdout).text())).toMatchObject({
    code: 11,
    msg: "error calling DHCP.Allocate: the attachment is being removed",
  });
  expect(await child.exited).toBe(1);
  expect(readdirSync(join(lan.directory, "dhcp")).filter((name) => name.endsWith(".json"))).toEqual([]);
});

lanTest("a DEL that the server reads together with the end of its ADD is no trouble", async (lan) => {
  const server = await lan.startLeaseServer();
  // The server reads from the first connection first.
  using connection = connectTo(lan.socket, SOCK_STREAM)!;
  const child = await startAdd(lan, server.log);
  server.process.kill("SIGSTOP");
  child.kill("SIGKILL");
  await child.exited;
  sendRequest(connection, { command: "del", attachment: ATTACHMENT });
  server.process.kill("SIGCONT");
  expect(awaitReadable(connection.fd, -1) && new TextDecoder().decode(receiveAvailable(connection.fd))).toBe("{}\n");
  lan.call("bridge", "STATUS", lan.config);
  expect(server.process.exitCode).toBeNull();
});

lanTest("an ADD that waits fails once another one of the attachment begins", async (lan) => {
  const server = await lan.startLeaseServer();
  const child = await startAdd(lan, server.log);
  const settings = {
    ...ATTACHMENT,
    netns: lan.container.path,
    netnsRecord: { identity: lan.container.identity },
    clientId: "0063",
    provided: [],
    requested: [],
    priority: 7,
  };
  using connection = connectTo(lan.socket, SOCK_STREAM)!;
  sendRequest(connection, { command: "add", settings });
  expect(JSON.parse(await new Response(child.stdout).text())).toMatchObject({
    code: 11,
    msg: "error calling DHCP.Allocate: another ADD of the attachment has begun",
  });
});

const ATTACHMENT = { network: "lan", containerId: "c1", ifname: "eth0" };

const sendRequest = ({ fd }: Descriptor, request: object): void =>
  void sendAvailable(fd, new TextEncoder().encode(`${JSON.stringify(request)}\n`));

/** Starts an ADD as a process of its own, which waits for an address. */
async function startAdd(lan: DhcpLan, log: () => string): Promise<Bun.Subprocess<Buffer, "pipe">> {
  const child = lan.host.run<Bun.Subprocess<Buffer, "pipe">>(() =>
    Bun.spawn([fullProgramLink("bridge")], {
      env: { ...ENGINE_ENV, CNI_COMMAND: "ADD", CNI_CONTAINERID: "c1", CNI_NETNS: lan.container.path },
      stdin: Buffer.from(JSON.stringify({ cniVersion: "1.1.0", type: "bridge", ...lan.config })),
      stdout: "pipe",
    })
  );
  await until(() => log().includes("asks for an address"));
  return child;
}
