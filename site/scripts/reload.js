// Only `make serve` sends this: when the site has been built again, the page that is open shows the new one.
(() => {
  "use strict";
  let seen = null;
  setInterval(async () => {
    try {
      const now = await (await fetch("/feedrate-build")).text();
      if (seen !== null && now !== seen) location.reload();
      seen = now;
    } catch {
      // The server has ended; if it comes back, so do its answers.
    }
  }, 1000);
})();
