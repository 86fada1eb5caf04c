/** Examples of the library's documentation, and the node on which they run. */
import type { Namespaces } from "./netns.ts";

/** In mounts of its own: a network "web" and a container's namespace "c1". */
const NODE = `
  for each in /etc /run /var/lib; do mount -t tmpfs tmpfs "$each" || exit; done
  [ ! -d /opt/cni ] || mount -t tmpfs tmpfs /opt/cni || exit
  mkdir -p /etc/cni/net.d /run/netns && : >/run/netns/c1 && mount --bind "$1" /run/netns/c1 || exit
  echo "$2" >/etc/cni/net.d/web.conflist
  shift 2; exec "$@"`;
const WEB = JSON.stringify({
  cniVersion: "1.1.0",
  name: "web",
  plugins: [
    { type: "bridge", bridge: "web0", ipam: { type: "host-local", ranges: [[{ subnet: "10.1.0.0/24" }]] } },
    { type: "portmap", capabilities: { portMappings: true } },
  ],
});

export function runExample({ host, container }: Namespaces, file: string) {
  const command = ["unshare", "-m", "sh", "-c", NODE, "sh", container.path, WEB, process.execPath, file];
  const env = { PATH: process.env.PATH! };
  const { stdout, stderr } = host.run(() => Bun.spawnSync(command, { stdin: "ignore", env, timeout: 50_000 }));
  return { lines: stdout.toString().split("\n").slice(0, -1), stderr: stderr.toString() };
}

/** What is behind code is what it prints. */
export const expectedLines = (code: string): string[] =>
  [...code.matchAll(/^.*[;,)}\]] \/\/ (.*)$/gm)].map(([, text = ""]) => text);
