"""``python -m tests.snapshots [--records] [room ...]`` writes snapshots anew, or all of them.

With ``--records`` the records of today are listed first.
"""

import sys

from .files import WRITTEN, write, write_list

asked = sys.argv[1:]
if "--records" in asked:
    asked.remove("--records")
    write_list()
for room in asked or WRITTEN:
    write(room)
