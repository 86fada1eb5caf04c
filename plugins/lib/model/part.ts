/** What the process of a part of `cni serve` has from the server. */
export interface PartContext {
  /** A descriptor: the listening socket of its plugin's calls. */
  readonly listener: number;
  /** A descriptor: readable when the part is to end. */
  readonly lifetime: number;
  /** A directory for this part alone. */
  readonly stateDirectory: string;
  log(message: string): void;
  /** Told in each round whether there is work: without any, the server may end. */
  tellWork(hasWork: boolean): void;
  /** Counts for the metrics. @param kind `discover`, `forwarded` */
  count(kind: string, count: number): void;
}
