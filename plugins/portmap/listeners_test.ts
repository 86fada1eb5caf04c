import { expect, spyOn } from "bun:test";
import { readFileSync } from "node:fs";
import { ENGINE_ENV, pluginLink } from "../../testing/binary.ts";
import { newUdpClient, requestTcp, requestUdp, serveTcp, serveTcpAndUdp, serveUdp } from "../../testing/traffic.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { runInNetns } from "../../testing/netns.ts";
import { errorOfCall, invokePlugin, newHostContext, newRequest } from "../../testing/plugin_call.ts";
import { bridgeNetworkTest } from "../../testing/bridge_network.ts";
import portmap from "./plugin.ts";
import * as holders from "../../ffi/diag/socket_owners.ts";
import { portMappingConfig } from "../../testing/portmap.ts";
import { nftListRuleset } from "../../testing/ruleset.ts";

const on = (hostIP?: string, protocol = "tcp", more = {}) =>
  portMappingConfig([{ hostPort: 8080, containerPort: 80, protocol, ...hostIP === undefined ? {} : { hostIP } }], more);

/** Which published addresses are refused while something listens on the first. */
const CASES: readonly (readonly [listening: string, shown: string, refused: readonly string[]])[] = [
  ["0.0.0.0", "0.0.0.0:8080", ["", "0.0.0.0", "192.0.2.1", "127.0.0.1"]],
  ["127.0.0.1", "127.0.0.1:8080", ["", "0.0.0.0", "127.0.0.1"]],
  ["192.0.2.1", "192.0.2.1:8080", ["", "0.0.0.0", "192.0.2.1"]],
  // An IPv6 socket of all addresses is reached over IPv4 as well.
  ["::", "[::]:8080", ["", "0.0.0.0", "192.0.2.1", "127.0.0.1", "::", "::1", "2001:db8::1", "fd88::1"]],
  ["::ffff:192.0.2.1", "192.0.2.1:8080", ["", "0.0.0.0", "192.0.2.1"]],
  ["2001:db8::1", "[2001:db8::1]:8080", ["", "::", "2001:db8::1"]],
  ["::1", "[::1]:8080", ["", "::", "::1"]],
];
/** What the kernel calls a program. */
const nameOf = (pid: number): string => readFileSync(`/proc/${pid}/comm`, "utf8").trim();
const SELF = `"${nameOf(process.pid)}" (process ${process.pid})`;
const ADDRESSES = ["", "0.0.0.0", "192.0.2.1", "127.0.0.1", "::", "::1", "2001:db8::1", "fd88::1"];

const listen = (protocol: string, host: Netns, address: string) =>
  protocol === "tcp" ? serveTcp(host, "host", 8080, address) : serveUdp(host, "host", 8080, address);

for (const protocol of ["tcp", "udp"]) {
  bridgeNetworkTest(
    `a ${protocol} port that a program listens on is refused with its name, if it would lose calls`,
    async (network) => {
      const { host, call } = network;
      const container = network.container(2);
      for (const [listening, shown, refused] of CASES) {
        using _listener = await listen(protocol, host, listening);
        const errors = ADDRESSES.flatMap((address) => {
          const config = on(address === "" ? undefined : address, protocol);
          try {
            call(portmap, "ADD", config, { container });
            call(portmap, "DEL", config, { container });
            return [];
          } catch (error) {
            return [[address, error as Error & { code: number }] as const];
          }
        });
        expect([listening, ...errors.map(([address]) => address)]).toEqual([listening, ...refused]);
        for (const [, { code, message }] of errors) {
          expect(code).toBe(100);
          expect(message).toEndWith(`8080/${protocol}: ${SELF} listens on ${shown}`);
        }
      }
    },
  );
}

bridgeNetworkTest(
  "a port that is refused leaves nothing, and what does not concern it is no reason to refuse",
  async (network) => {
    const { host, call } = network;
    const container = network.container(2);
    using _tcp = serveTcp(host, "tcp", 8080, "0.0.0.0");
    using _udp = await serveUdp(host, "udp", 5353, "0.0.0.0");
    using _between = serveTcp(host, "between", 8079, "0.0.0.0");
    const only6 = { ...container.result, ips: container.result.ips!.slice(1) };
    const mapping = { hostPort: 8080, containerPort: 80 };
    call(portmap, "ADD", portMappingConfig([mapping]), { container, prevResult: only6 });
    call(portmap, "DEL", portMappingConfig([mapping]), { container, prevResult: only6 });
    const other = [{ ...mapping, protocol: "udp" }, { ...mapping, hostPort: 5353 }, { ...mapping, hostPort: 8078 }];
    call(portmap, "ADD", portMappingConfig(other), { container });
    const before = nftListRuleset(host);
    expect(errorOfCall(() => call(portmap, "ADD", portMappingConfig([...other, mapping]), { container })).message)
      .toBe(
        `Cannot publish host port 8080/tcp: ${SELF} listens on 0.0.0.0:8080`,
      );
    expect(nftListRuleset(host)).toBe(before);
    // SCTP is nothing that this kernel has sockets for, or nobody has one.
    call(portmap, "ADD", portMappingConfig([...other, { ...mapping, protocol: "sctp" }]), { container });
    // Calls that the host makes itself take ports as well, and are no listeners.
    using _client = await connected(host, network.outside);
    call(portmap, "ADD", portMappingConfig([{ ...mapping, hostPort: _client.port }]), { container, containerId: "c2" });
  },
);

/** Where a range of published UDP ports meets a client's socket: among those that the kernel gives out. */
const CLIENT_PORT = 40_000;

const publishUdp = (...ports: number[]) =>
  portMappingConfig(ports.map((hostPort) => ({ hostPort, containerPort: 53, protocol: "udp" })));

bridgeNetworkTest("a UDP client keeps its answers when its port is published", async (network) => {
  const { host, outside, call, log } = network;
  const container = network.container(2);
  using _server = await serveUdp(outside, "outside", 53);
  using _published = await serveUdp(container.netns, "container", 53);
  using client = await newUdpClient(host, "0.0.0.0");
  expect(await client.request("192.0.2.2", 53)).toBe("outside 192.0.2.1");
  call(portmap, "ADD", publishUdp(client.port), { container });
  expect(await client.request("192.0.2.2", 53)).toBe("outside 192.0.2.1");
  expect(await requestUdp(outside, "192.0.2.1", client.port)).toBe("container 192.0.2.2");
  expect(log).toEqual([warningOf(client.port)]);
});

const warningOf = (port: number) =>
  `portmap: Publishing host port ${port}/udp although ${SELF} has a socket on 0.0.0.0:${port}: ` +
  "if that is a server, its clients reach the container from now on";

bridgeNetworkTest("a UDP server on a port for clients loses them, and is named", async (network) => {
  const { host, outside, call, log } = network;
  const container = network.container(2);
  using _server = await serveUdp(host, "server", CLIENT_PORT, "0.0.0.0");
  using _published = await serveUdp(container.netns, "container", 53);
  expect(await requestUdp(outside, "192.0.2.1", CLIENT_PORT)).toBe("server 192.0.2.2");
  call(portmap, "ADD", publishUdp(CLIENT_PORT), { container });
  expect(log).toEqual([warningOf(CLIENT_PORT)]);
  expect(await requestUdp(outside, "192.0.2.1", CLIENT_PORT)).toBe("container 192.0.2.2");
});

bridgeNetworkTest(
  "sockets of UDP that may be those of clients, or that are told by all, keep no port from being published",
  async (network) => {
    const { host, call } = network;
    const container = network.container(2);
    for (
      const [hostname, port] of [
        ["0.0.0.0", CLIENT_PORT],
        ["::", CLIENT_PORT],
        ["192.0.2.1", CLIENT_PORT],
        ["224.0.0.251", 5353],
        ["ff05::fb", 5353],
        ["192.0.2.255", 137],
        ["255.255.255.255", 137],
      ] as const
    ) {
      using _socket = await serveUdp(host, "none", port, hostname);
      call(portmap, "ADD", publishUdp(port - 1, port, port + 1), { container });
      call(portmap, "DEL", publishUdp(port - 1, port, port + 1), { container });
    }
    // What the administrator has reserved is given to no client; TCP clients do not listen.
    runInNetns(
      host,
      "sh",
      "-c",
      `echo 5,${CLIENT_PORT - 2}-${CLIENT_PORT} >/proc/sys/net/ipv4/ip_local_reserved_ports`,
    );
    using _server = await serveUdp(host, "server", CLIENT_PORT, "0.0.0.0");
    using _tcp = serveTcp(host, "server", CLIENT_PORT + 1, "0.0.0.0");
    const errors = [
      publishUdp(CLIENT_PORT),
      portMappingConfig([{ hostPort: CLIENT_PORT + 1, containerPort: 80, protocol: "tcp" }]),
    ].map((config) => errorOfCall(() => call(portmap, "ADD", config, { container })).message);
    expect(errors).toEqual(
      [`${CLIENT_PORT}/udp`, `${CLIENT_PORT + 1}/tcp`].map((port) => expect.stringContaining(port)),
    );
  },
);

bridgeNetworkTest(
  "who listens to the group of mDNS is no listener, and who listens on its port is",
  async (network) => {
    const { host, call } = network;
    const container = network.container(2);
    const openSocket = async (hostname: string) => {
      const { pending } = host.run(() => ({ pending: Bun.udpSocket({ hostname, port: 5353 }) }));
      const socket = await pending;
      return { socket, [Symbol.dispose]: () => socket.close() };
    };
    for (
      const [hostname, group, device] of [["0.0.0.0", "224.0.0.251", "192.0.2.1"], ["::", "ff02::fb", "%up0"]] as const
    ) {
      using opened = await openSocket(hostname);
      expect(errorOfCall(() => call(portmap, "ADD", publishUdp(5353), { container })).message).toContain("5353/udp");
      if (hostname === "0.0.0.0") host.run(() => opened.socket.addMembership(group, device));
      else host.run(() => opened.socket.addMembership(group, device));
      call(portmap, "ADD", publishUdp(5353), { container });
      call(portmap, "DEL", publishUdp(5353), { container });
    }
  },
);

bridgeNetworkTest("a socket of nobody is a listener as long as it is there", async (network) => {
  const { host, call } = network;
  const container = network.container(2);
  using find = spyOn(holders, "findSocketOwners");
  // That of WireGuard, and whatever lives where this process cannot look.
  find.mockImplementation((inodes) => new Map(inodes.map((inode) => [inode, []])));
  using socket = await serveUdp(host, "kernel", CLIENT_PORT);
  expect(errorOfCall(() => call(portmap, "ADD", publishUdp(CLIENT_PORT), { container })).message).toContain(
    "or the kernel itself, listens on",
  );
  // A client's, which is gone by the time that somebody looks for its program.
  find.mockImplementation((inodes) => {
    socket[Symbol.dispose]();
    return new Map(inodes.map((inode) => [inode, []]));
  });
  call(portmap, "ADD", publishUdp(CLIENT_PORT), { container });
});

/** A connection from a port of the host to a server outside. */
async function connected(host: Netns, outside: Netns): Promise<Disposable & { port: number }> {
  const resources = new DisposableStack();
  const server = outside.run<{ listener: Bun.TCPSocketListener }>(() => ({
    listener: Bun.listen({ hostname: "0.0.0.0", port: 7000, socket: { data() {} } }),
  }));
  resources.defer(() => server.listener.stop(true));
  let connection: ReturnType<typeof Bun.connect>;
  host.run(() => void (connection = Bun.connect({ hostname: "192.0.2.2", port: 7000, socket: { data() {} } })));
  const socket = await connection!;
  resources.defer(() => void socket.terminate());
  return { port: socket.localPort, [Symbol.dispose]: () => resources.dispose() };
}

bridgeNetworkTest("hostPortInUse publishes it all the same, with a warning or without", async (network) => {
  const { host, outside, call, log } = network;
  const [a, b] = [network.container(2), network.container(3)];
  using _a = await serveTcpAndUdp(a.netns, "a");
  using _b = await serveTcpAndUdp(b.netns, "b");
  using _host = serveTcp(host, "host", 8080);
  for (const [hostPortInUse, said] of [["warn", 1], ["ignore", 0]] as const) {
    const config = on(undefined, "tcp", { hostPortInUse });
    expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("host 192.0.2.2");
    call(portmap, "ADD", config, { container: a, containerId: "a" });
    expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("a 192.0.2.2");
    expect(log.splice(0)).toEqual(
      Array(said).fill(
        `portmap: hostPortInUse is "warn", continuing: Cannot publish host port 8080/tcp: ${SELF} listens on [::]:8080`,
      ),
    );
    // The one address of a port that another container has on all of them.
    const one = on("192.0.2.1", "tcp", { hostPortInUse });
    call(portmap, "ADD", one, { container: b, containerId: "b" });
    expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("b 192.0.2.2");
    expect(log.splice(0)).toHaveLength(2 * said);
    // The same port of the same address can have one container only.
    const error = errorOfCall(() => call(portmap, "ADD", config, { container: b, containerId: "b" }));
    expect(error.message).toBe(
      'Cannot publish host port 8080/tcp: container "a" (network "web", interface "eth0") has it',
    );
    log.splice(0);
    call(portmap, "DEL", one, { container: b, containerId: "b" });
    call(portmap, "DEL", config, { container: a, containerId: "a" });
  }
});

/** A program of its own that listens on port 8080 of the host, and on those among the words of its command line. */
async function program(host: Netns, ...words: string[]): Promise<Disposable & { pid: number }> {
  const script = `for (const port of new Set([8080, ...process.argv.map(Number).filter((each) => each > 0)])) {
      Bun.listen({ hostname: "0.0.0.0", port, socket: { data() {} } });
    }
    console.log("ready");`;
  const { child } = host.run(() => ({
    child: Bun.spawn([process.execPath, "-e", script, ...words], { stdin: "ignore", stdout: "pipe" }),
  }));
  await child.stdout.getReader().read();
  return { pid: child.pid, [Symbol.dispose]: () => child.kill("SIGKILL") };
}

bridgeNetworkTest(
  "who listens on behalf of the container is none of those, and rules are put back whoever listens",
  async (network) => {
    const { host, call, restore } = network;
    const container = network.container(2);
    const [id, other] = ["0123456789abcdef".repeat(4), "fedcba9876543210".repeat(4)];
    using supervisor = await program(host, "-c", id!, "8080");
    const add = (containerId: string) => call(portmap, "ADD", on(), { container, containerId });
    add(id!);
    expect(restore(portmap, on(), { container, containerId: id! })).toEqual([]);
    call(portmap, "DEL", on(), { container, containerId: id! });
    // An id that could stand in any command line proves nothing.
    for (const each of [other!, "8080"]) {
      expect(errorOfCall(() => add(each)).message).toBe(
        `Cannot publish host port 8080/tcp: "${
          nameOf(supervisor.pid)
        }" (process ${supervisor.pid}) listens on 0.0.0.0:8080`,
      );
    }
    call(portmap, "ADD", on(undefined, "tcp", { hostPortInUse: "ignore" }), { container, containerId: other! });
    runInNetns(host, "nft", "flush", "ruleset");
    expect(restore(portmap, on(), { container, containerId: other! })).toContain("host port 8080/tcp");
  },
);

bridgeNetworkTest(
  "however many ports are kept for the container, programs are looked through once",
  async (network) => {
    const { host, call } = network;
    const id = "0123456789abcdef".repeat(4);
    const ports = Array.from({ length: 50 }, (_, i) => 8081 + i);
    using _supervisor = await program(host, id, ...ports.map(String));
    using find = spyOn(holders, "findSocketOwners");
    const mappings = ports.map((hostPort) => ({ hostPort, containerPort: 80 }));
    call(portmap, "ADD", portMappingConfig(mappings), { container: network.container(2), containerId: id });
    expect(find).toHaveBeenCalledTimes(1);
  },
);

bridgeNetworkTest("a port that the caller listens on itself is kept for the container", async (network) => {
  const { host } = network;
  const { result, netns } = network.container(2);
  const env = { ...ENGINE_ENV, CNI_COMMAND: "ADD", CNI_CONTAINERID: "c1", CNI_NETNS: netns.path };
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "web", type: "portmap", prevResult: result, ...on() });
  /** What the plugin answers to a program that listens and then runs this. */
  const answerTo = async (...command: string[]) => {
    const script = `Bun.listen({ hostname: "0.0.0.0", port: 8080, socket: { data() {} } });
      const { stdout } = Bun.spawnSync(${JSON.stringify(command)}, { stdin: Buffer.from(${JSON.stringify(stdin)}) });
      console.log(stdout.toString());
      process.exit();`;
    const { child } = host.run(() => ({
      child: Bun.spawn([process.execPath, "-e", script], { env, stdin: "ignore", stdout: "pipe" }),
    }));
    return [child.pid, JSON.parse(await new Response(child.stdout).text())] as const;
  };
  const [, added] = await answerTo(pluginLink("portmap"));
  expect(added.ips).toHaveLength(2);
  // Who has somebody else call may be any service of the host.
  const [pid, refused] = await answerTo("sh", "-c", `${pluginLink("portmap")}; exit`);
  expect(refused).toMatchObject({
    code: 100,
    msg: expect.stringContaining(`(process ${pid}) listens on 0.0.0.0:8080`),
  });
});

bridgeNetworkTest("where the kernel does not tell who listens, that is said, and the port is published", (network) => {
  const { result, netns } = network.container(2);
  const log: string[] = [];
  const refused = () => {
    throw new SystemError("socket", 93, "open netlink socket");
  };
  const host: Netns = Object.create(network.host, { diag: { get: refused } });
  const request = newRequest("portmap", "ADD", { name: "web", prevResult: result, ...on() }, { netns });
  invokePlugin(portmap, request, newHostContext({ host, log }));
  expect(log).toEqual([
    expect.stringContaining(
      "Cannot check whether programs listen on the host ports, continuing without: Cannot open netlink socket",
    ),
  ]);
  expect(nftListRuleset(network.host)).toContain("tcp . 8080");
  return Promise.resolve();
});
