/** Docker beside containers of this program: it makes its rules anew at each start, with a policy that drops. */
import { expect } from "bun:test";
import { createNetns, type Netns } from "../../ffi/netns/netns.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { testWith } from "../../testing/binary.ts";
import { byProgram, newHealedHost } from "../../testing/healed_host.ts";

await loadPlugins();

/** Its files are nobody else's. */
const OWN_PLACES = "mount -t tmpfs none /run; mount -t tmpfs none /var/lib; mkdir /var/lib/docker";

/** Starts Docker as its unit does. It has made its rules when this returns. */
async function startDocker(host: Netns): Promise<AsyncDisposable> {
  const command = `${OWN_PLACES}; exec dockerd --storage-driver vfs`;
  const daemon = host.run(() => ({
    child: Bun.spawn(["unshare", "-m", "sh", "-c", command], { stdin: "ignore", stdout: "ignore", stderr: "pipe" }),
  })).child;
  let said = "";
  for await (const chunk of daemon.stderr) {
    said += new TextDecoder().decode(chunk);
    if (said.includes("API listen")) {
      return {
        async [Symbol.asyncDispose]() {
          daemon.kill("SIGTERM");
          await daemon.exited;
        },
      };
    }
  }
  throw new Error(`dockerd ended: ${said}`);
}

testWith(
  ["dockerd", "containerd", "iptables", "unshare"],
  "Docker starts, and starts again after a flush",
  async () => {
    using resources = new DisposableStack();
    const host = resources.use(createNetns());
    const { attach, newHealer, round, check, log, nft, shell } = newHealedHost(host, resources);
    shell("ip link set lo up");
    attach("c1");
    const healer = newHealer();
    round(healer);
    // Docker sets its policy where nobody has forwarded before.
    shell("echo 0 >/proc/sys/net/ipv4/ip_forward");
    {
      await using _docker = await startDocker(host);
      expect(nft("list", "chain", "ip", "filter", "FORWARD")).toContain("policy drop");
      round(healer);
      // Docker leaves the rules of others alone.
      expect([check("c1"), log]).toEqual(["", []]);
    }
    shell("iptables -F", "iptables -X");
    await using _docker = await startDocker(host);
    expect(check("c1")).not.toBe("");
    round(healer);
    expect([check("c1"), log]).toEqual(["", [byProgram("iptables")]]);
  },
);
