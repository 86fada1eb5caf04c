import { onScratchHost } from "../ffi/netns/mounts.ts";
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { replaceFile } from "../ffi/sys/atomic_file.ts";
import { type Descriptor, openFile, openReadWrite, readText } from "../ffi/sys/file.ts";
import { interruptedBy } from "../ffi/sys/signals.ts";
import { SIGTERM } from "../ffi/sys/uapi.ts";
import { LATEST } from "../spec/version.ts";
import { packetSocketPair, sendDescriptors, sendPacket } from "../ffi/sys/unix_socket.ts";
import { COMMIT_MESSAGE, formatRequest } from "./call.ts";

const DIRECTORY = "/run/warm-up";
const STDIN = `${DIRECTORY}/stdin`;
const STDOUT = `${DIRECTORY}/stdout`;
// Twice as many save 4 % of a call's processor time, and need twice the time until a server is ready.
const ROUNDS = 8;
/** JavaScriptCore's thresholds for compiling code, as multiples of its own. */
const WARM_UP_JIT_POLICY = 2;
/** In a process for one call, code is not worth compiling. A worker has compiled code from its warm-up. */
export const CALL_JIT_POLICY = 100;

const PORT_MAPPINGS = ["tcp", "udp"].map((protocol) => ({ hostPort: 8080, containerPort: 80, protocol }));
const ipamOf = (...subnets: readonly string[]) => ({
  type: "host-local",
  dataDir: `${DIRECTORY}/ipam`,
  ranges: subnets.map((subnet) => [{ subnet }]),
});
const PORTMAP = { type: "portmap", capabilities: { portMappings: true } };
const FIREWALL = { type: "firewall" };
const PLUGINS = {
  containers: [
    { type: "bridge", bridge: "cni0", isGateway: true, ipMasq: true, ipam: ipamOf("10.1.0.0/24") },
    { type: "tuning", sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" } },
    PORTMAP,
    FIREWALL,
  ],
  pods: [
    { type: "ptp", ipam: ipamOf("10.1.0.0/24", "fd00::/64") },
    // Nobody listens there, so that ADD does not wait for policies.
    { type: "network-policy", socketPath: `${DIRECTORY}/socket` },
    PORTMAP,
    { type: "bandwidth", capabilities: { bandwidth: true } },
    FIREWALL,
  ],
};
/** What engines ask for most on this node. */
export type WarmUpKind = keyof typeof PLUGINS;

const OPTIONS = ["--cache-dir", DIRECTORY, "--plugin-dir", ":", "-p", "8080:80"];
const NETWORK = { cniVersion: "1.0.0", name: "warm-up" };

/**
 * Serves calls of the common kinds, as a shim sends them, on a host that ends with them. What they run often is compiled
 * meanwhile. Later calls hardly start a compiler: its threads need a processor and memory, and a thread that starts while
 * a call is in a container keeps that namespace for seconds.
 */
export async function warmUp(
  kind: WarmUpKind,
  serve: (connection: Descriptor) => Promise<void>,
): Promise<void> {
  Bun.unsafe.setJITPolicy(WARM_UP_JIT_POLICY);
  await serveOnScratchHost(kind, serve);
  Bun.unsafe.setJITPolicy(CALL_JIT_POLICY);
  // Else 3 MB of garbage stay until the next collection.
  Bun.gc(true);
}

async function serveOnScratchHost(
  kind: WarmUpKind,
  serve: (connection: Descriptor) => Promise<void>,
): Promise<void> {
  await onScratchHost(async (container) => {
    ensureDirectory(DIRECTORY);
    const runCall = async (words: readonly string[], env: Readonly<Record<string, string>>, stdin: object) => {
      // Ends this process if it was told to: a server that ends does not wait for a warm-up.
      interruptedBy([SIGTERM], () => {});
      replaceFile(STDIN, JSON.stringify(stdin));
      replaceFile(STDOUT, "");
      using shim = sendCall(words, env);
      await serve(shim.server);
      return readText(STDOUT);
    };
    const env = {
      CNI_CONTAINERID: "warm-up",
      CNI_NETNS: container.path,
      CNI_IFNAME: "eth0",
      CNI_PATH: "/",
      CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=warm-up",
    };
    const callPlugin = (
      plugin: { readonly type: string },
      command: string,
      { prevResult, cniVersion = NETWORK.cniVersion, ...changes }: PluginCallIn = {},
    ) =>
      runCall([plugin.type], { ...env, CNI_COMMAND: command, ...changes }, {
        ...NETWORK,
        cniVersion,
        ...plugin,
        runtimeConfig: { portMappings: PORT_MAPPINGS },
        ...prevResult !== undefined && { prevResult },
      });
    const plugins = PLUGINS[kind];
    const runNetwork = (command: string) =>
      runCall(["cni", "run", command, "-", container.path, ...OPTIONS], {}, { ...NETWORK, plugins });
    for (let round = 0; round < ROUNDS; round++) {
      let prevResult: unknown;
      for (const plugin of plugins) prevResult = JSON.parse(await callPlugin(plugin, "ADD", { prevResult }));
      for (const plugin of plugins.toReversed()) await callPlugin(plugin, "DEL", { prevResult });
      // Older versions have no STATUS.
      for (const command of ["VERSION", "STATUS"]) await callPlugin(plugins[0]!, command, { cniVersion: LATEST });
      if (kind === "pods") {
        for (const command of ["ADD", "DEL"]) await callPlugin({ type: "loopback" }, command, { CNI_IFNAME: "lo" });
      } else for (const command of ["add", "check", "del"]) await runNetwork(command);
    }
  });
}

interface PluginCallIn {
  readonly prevResult?: unknown;
  readonly cniVersion?: string;
  readonly CNI_IFNAME?: string;
}

/** Sends the shim's commit before the offer. */
function sendCall(
  words: readonly string[],
  env: Readonly<Record<string, string>>,
): Disposable & { server: Descriptor } {
  using resources = new DisposableStack();
  const [shim, server] = packetSocketPair();
  resources.use(shim);
  const fds = [
    resources.use(openFile(STDIN)),
    resources.use(openReadWrite(STDOUT)),
    // A plugin may warn of what this host lacks.
    resources.use(openReadWrite("/dev/null")),
    resources.use(openFile("/")),
    resources.use(openFile("/proc/thread-self/ns/net")),
  ];
  sendPacket(shim.fd, formatRequest(words, env));
  sendDescriptors(shim.fd, COMMIT_MESSAGE, fds.map(({ fd }) => fd));
  const owned = resources.move();
  return { server, [Symbol.dispose]: () => owned.dispose() };
}
