"""All attacks, kind by kind."""

from tests.adversary.attack import Attack
from tests.adversary.attacks_doubt import ATTACKS as DOUBT
from tests.adversary.attacks_exhaust import ATTACKS as EXHAUST
from tests.adversary.attacks_hosts import ATTACKS as HOSTS
from tests.adversary.attacks_job import ATTACKS as JOB
from tests.adversary.attacks_servers import ATTACKS as SERVERS
from tests.adversary.attacks_stay import ATTACKS as STAY
from tests.adversary.attacks_steal import ATTACKS as STEAL
from tests.adversary.attacks_tamper import ATTACKS as TAMPER
from tests.adversary.attacks_terminal import ATTACKS as TERMINAL

ATTACKS: tuple[Attack, ...] = (*STEAL, *HOSTS, *STAY, *TAMPER, *EXHAUST, *TERMINAL, *JOB, *DOUBT, *SERVERS)
