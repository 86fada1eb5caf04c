/** Somebody removes the device while it is on its way back: then it is not there, and nothing has failed. */
import { expect } from "bun:test";
import * as link from "../../ffi/route/link.ts";
import { interruptNetns } from "../../testing/interrupted_netns.ts";
import { type Namespaces, netnsTest, runInNetns } from "../../testing/netns.ts";
import { moveToContainer, moveToHost, restoreOnHost } from "./move_device.ts";
import { describeDevice, type SavedDevice } from "./saved_device.ts";

function take({ host, container }: Namespaces): SavedDevice {
  runInNetns(host, ..."ip link add nic0 mtu 1400 up type veth peer name far0".split(" "));
  const device = link.get(host.route, "nic0");
  const saved = {
    owner: { network: "net", containerID: "c1", ifname: "net1" },
    netns: { path: container.path, identity: container.identity },
    ...describeDevice(device),
  };
  return { ...saved, inside: moveToContainer(host, container, device, "net1").index };
}

const WAYS = {
  "out of the container": (namespaces: Namespaces, saved: SavedDevice, at: number, act: () => void) => {
    const container = interruptNetns(namespaces.container, at, act);
    moveToHost(namespaces.host, container, saved, () => {});
    return container.requests;
  },
  "on its way into the host": (namespaces: Namespaces, saved: SavedDevice, at: number, act: () => void) => {
    const host = interruptNetns(namespaces.host, at, act);
    moveToHost(host, namespaces.container, saved, () => {});
    return host.requests;
  },
  "on the host": (namespaces: Namespaces, saved: SavedDevice, at: number, act: () => void) => {
    link.set(namespaces.container.route, saved.inside!, { netnsFd: namespaces.host.fd });
    const host = interruptNetns(namespaces.host, at, act);
    restoreOnHost(host, saved, false, () => {});
    return host.requests;
  },
};

for (const [where, way] of Object.entries(WAYS)) {
  netnsTest(`a device that is removed ${where} before any request is given up without an error`, (namespaces) => {
    const { host } = namespaces;
    const removed = () => runInNetns(host, "ip", "link", "del", "far0");
    let at = 0;
    // Until there are no more requests than that.
    for (let made = Infinity; made >= at;) {
      const saved = take(namespaces);
      made = way(namespaces, saved, ++at, removed);
      host.run(() => Bun.spawnSync(["ip", "link", "del", "far0"], { stderr: "ignore" }));
    }
    expect(at).toBeGreaterThan(2);
  });
}
