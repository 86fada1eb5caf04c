/** What is attached to networks. @module */

/** A container, as far as plugins know of it. */
export interface Container {
  readonly id: string;
  /** The path of its namespace. */
  readonly netns: string;
  readonly portMappings: readonly PortMapping[];
}

/** A published port. */
interface PortMapping {
  readonly hostPort: number;
  readonly containerPort: number;
  readonly protocol: string;
}

/** The interface of each. */
export const IFNAME = "eth0";

/** A container whose namespace has the same name, with a port published for TCP and UDP. */
export const newContainer = (id: string, hostPort: number): Container => ({
  id,
  netns: `/run/netns/${id}`,
  portMappings: [
    { hostPort, containerPort: 80, protocol: "tcp" },
    { hostPort, containerPort: 53, protocol: "udp" },
  ],
});
