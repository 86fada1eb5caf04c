/** One effect of removing a network, as `cni network rm --json` prints it. */
export interface RemovalStep {
  readonly action: "detach" | "clean" | "remove-link" | "remove-address" | "remove-directory" | "remove-file";
  /** `eth0 of container "c1"`, a link or a path. */
  readonly target: string;
  /** An imperative: `remove the bridge "cni-web"`. */
  readonly description: string;
}

/** A {@linkcode RemovalStep} that can be carried out. */
export interface RemovalEffect extends RemovalStep {
  /** Succeeds if it has been carried out already. @returns false if the target stays, which it logs */
  carryOut(): boolean;
}
