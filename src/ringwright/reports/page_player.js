// The player of a page: what it plays stands in the page's data.
import { Player } from "./player.js";

(() => {
  const held = JSON.parse(document.getElementById("data").textContent).play;
  const home = document.getElementById("player");
  if (!held || !home) return;
  const player = new Player(held);
  home.replaceChildren(player.root);
  player.start();
})();
