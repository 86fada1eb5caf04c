/** How many routes to other nodes' pods the kernel has, by their way. */
export interface RouteCounts {
  readonly direct: number;
  readonly tunnel: number;
}
