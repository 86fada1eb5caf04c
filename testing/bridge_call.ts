/** A call of the plugin `bridge` by a command of the shell, as an engine makes it. @module */

export const BRIDGE_CONFIG = JSON.stringify({
  cniVersion: "1.0.0",
  name: "lan",
  type: "bridge",
  bridge: "lan0",
  ipam: { type: "host-local", subnet: "10.92.0.0/24", dataDir: "/run/ipam" },
});

/** @param container also the name of its network namespace @param program in the place of the one in the directory */
export const bridgeCall = (
  directory: string,
  verb: string,
  container: string,
  program = `${directory}/bridge`,
): string =>
  `echo '${BRIDGE_CONFIG}' | CNI_COMMAND=${verb} CNI_CONTAINERID=${container} CNI_NETNS=/run/netns/${container} \
   CNI_IFNAME=eth0 CNI_PATH=${directory} ${program}`;
